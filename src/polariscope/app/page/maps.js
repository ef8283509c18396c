// Maps of a place: image, classes and probabilities over each other, and a slider over the years.
import { get, h, number, of } from "./dom.js";

export async function mapsTab(place, state) {
  const { maps } = await get(of(state.id, "/maps"));
  const regions = [...new Set(maps.map((one) => one.region))];
  const region = h("select", { id: "region", "aria-label": "Place", onchange: () => { years(); draw(); } }, regions.map((name) => h("option", { value: name }, name)));
  const year = h("input", { type: "range", id: "year", min: 0, step: 1, value: 0, "aria-label": "Year", oninput: draw });
  const words = h("output", { id: "year-words" });
  const stage = h("div", { class: "stage", id: "stage" });
  const first = maps[0].classes;
  const shownClasses = new Set(first.map((one) => one.number));
  const boxes = first.map((one) => h("label", { class: "layer" }, h("input", { type: "checkbox", checked: true, "data-class": one.number, onchange: (event) => { shownClasses[event.target.checked ? "add" : "delete"](one.number); draw(); } }), swatch(one.colour), one.name));
  const image = h("input", { type: "checkbox", checked: true, id: "layer-image", onchange: draw });
  const chance = h("select", { id: "layer-probability", onchange: draw }, h("option", { value: "" }, "None"), first.map((one) => h("option", { value: one.number }, `of ${one.name}`)));
  const strength = h("input", { type: "range", id: "strength", min: 0, max: 1, step: 0.05, value: 0.75, "aria-label": "How opaque classes and probabilities are", oninput: fade });
  const table = h("tbody"), head = h("tr");

  const here = () => maps.filter((one) => one.region === region.value);
  function years() { year.max = here().length - 1; year.value = 0; year.disabled = here().length < 2; }
  function fade() { for (const one of stage.querySelectorAll(".over")) one.style.opacity = strength.value; }

  function draw() {
    const chosen = here()[Number(year.value)], at = maps.indexOf(chosen);
    const source = (layer, number = 0) => `${of(state.id, `/maps/${at}/${layer}`)}?of=${number}`;
    const layers = [];
    if (image.checked && chosen.image) layers.push(h("img", { src: source("image"), alt: `Image ${chosen.name}`, "data-layer": "image" }));
    if (chance.value !== "") layers.push(h("img", { class: "over", src: source("probability", chance.value), alt: `Probability ${chance.selectedOptions[0].textContent}`, "data-layer": "probability" }));
    for (const one of chosen.classes) if (shownClasses.has(one.number)) layers.push(h("img", { class: "over", src: source("class", one.number), alt: `Pixels mapped as ${one.name}`, "data-layer": `class ${one.number}` }));
    stage.replaceChildren(...layers);
    stage.style.aspectRatio = `${chosen.width} / ${chosen.height}`;
    stage.dataset.map = chosen.name;
    fade();
    words.textContent = `${chosen.year ?? chosen.name}${image.checked && !chosen.image ? ": the image file was moved or deleted" : ""}`;
    const all = here();
    head.replaceChildren(h("th", {}, "Class"), ...all.map((one) => h("th", { class: "number" }, String(one.year ?? one.name))));
    table.replaceChildren(...chosen.classes.map((kind, i) => h("tr", {}, h("td", {}, swatch(kind.colour), kind.name), ...all.map((one) => { const cell = h("td", { class: "number" }, `${number(one.classes[i].area)} ${one.unit}`); if (one === chosen) cell.className = "number now"; return cell; }))));
  }

  place.append(h("div", { class: "card" }, h("div", { class: "row" }, regions.length > 1 ? region : h("h2", {}, regions[0]), h("div", { class: "grow" }, year), words),
    h("div", { class: "map" }, stage, h("div", {}, h("h2", {}, "Layers"), h("label", { class: "layer" }, image, "Image"), boxes, h("p"), h("label", { class: "field" }, "Probability", chance), h("p"), h("label", { class: "field" }, "Strength", strength)))),
    h("div", { class: "card" }, h("h2", {}, "Areas as mapped"), h("p", { class: "hint" }, "Errors of the map are not corrected here; the document of 'polariscope map evaluate' corrects them, with intervals."), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), table))));
  years();
  draw();
}

function swatch(colour) {
  const dot = h("i", { class: "swatch" });
  dot.style.background = colour;
  return dot;
}
