// Sliders that decode as they move; examples to start from; a way between two; walks along each variable.
import { arrows, badge, decoded, examples, h, latest, number, of, paint, picture, post, tell } from "./dom.js";

const GALLERY = 24, BETWEEN = 11;

export async function explore(place, state) {
  const space = await state.spaceOf();
  const { shape } = space, id = state.id;
  const code = [...space.codes[0]];
  const big = h("canvas", { id: "decoded", role: "img", "aria-label": "The decoded image" });
  const original = h("canvas", { role: "img", "aria-label": "The example" }), again = h("canvas", { role: "img", "aria-label": "Its reconstruction" });
  const took = h("p", { class: "hint" });
  const sliders = new Map();

  const draw = latest(async (codes) => {
    const begun = performance.now();
    const pictures = await decoded(id, codes, shape);
    paint(big, pictures);
    const spent = performance.now() - begun;
    took.textContent = `decoded in ${spent.toFixed(0)} ms`;
    big.dataset.milliseconds = spent.toFixed(1);
    big.dataset.code = codes[0].map((x) => x.toFixed(3)).join(" ");
  });

  function set(next) {
    next.forEach((value, i) => { code[i] = value; });
    for (const [i, { input, output }] of sliders) { input.value = code[i]; output.textContent = code[i].toFixed(2); }
    draw([[...code]]);
  }

  const list = h("div", {}, space.variables.map((v) => {
    const output = h("output", {}, code[v.number].toFixed(2));
    const label = v.factor ? `encodes ${v.factor}` : v.kind;
    const input = h("input", { type: "range", min: Math.min(v.low, -3).toFixed(2), max: Math.max(v.high, 3).toFixed(2), step: "0.01", "data-latent": v.number, "aria-label": `Latent variable z${v.number}, ${v.kind}${v.factor ? `, ${label}` : ""}`,
      oninput: () => { code[v.number] = Number(input.value); output.textContent = code[v.number].toFixed(2); draw([[...code]]); },
      ondblclick: () => { code[v.number] = 0; input.value = 0; output.textContent = "0.00"; draw([[...code]]); } });
    input.value = code[v.number];
    sliders.set(v.number, { input, output });
    return h("div", { class: `slider ${v.kind.replaceAll(" ", "-")}` }, h("div", {}, badge(v.kind, `z${v.number}`), h("div", { class: "what", title: label }, label)), input, output);
  }));

  const shown = space.numbers.length > GALLERY ? Array.from({ length: GALLERY }, (_, i) => Math.floor(i * (space.numbers.length - 1) / (GALLERY - 1))) : space.numbers.map((_, i) => i);
  const gallery = arrows(h("div", { class: "gallery", id: "examples", role: "group", "aria-label": "Examples to start from" }), "button");
  const pictures = await examples(id, shown.map((row) => space.numbers[row]), shape);
  async function start(row, picked) {
    state.memory.row = row;
    for (const button of gallery.children) button.setAttribute("aria-pressed", button === picked);
    set(space.codes[row]);
    paint(original, picked ? pictures : await examples(id, [space.numbers[row]], shape), picked ? shown.indexOf(row) : 0);
    paint(again, await decoded(id, [space.codes[row]], shape));
    walks();
  }
  shown.forEach((row, i) => {
    const button = h("button", { type: "button", "aria-pressed": "false", title: describe(space, row), "data-row": row, onclick: () => start(row, button) }, picture(pictures, i, 56, `Example ${space.numbers[row]}: ${describe(space, row)}`));
    gallery.append(button);
  });

  // Between two codes.
  const ends = { A: space.codes[shown[0]], B: space.codes[shown[shown.length - 1]] };
  const way = h("div", { class: "gallery", id: "between" });
  const along = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0, "aria-label": "From A to B", id: "along", oninput: () => set(mixed(Number(along.value))) });
  const mixed = (t) => ends.A.map((a, i) => a + t * (ends.B[i] - a));
  const redrawWay = latest(async () => {
    const codes = Array.from({ length: BETWEEN }, (_, i) => mixed(i / (BETWEEN - 1)));
    const images = await decoded(id, codes, shape);
    way.replaceChildren(...codes.map((_, i) => h("button", { type: "button", "aria-label": `${Math.round(100 * i / (BETWEEN - 1))} % of the way`, onclick: () => { along.value = i / (BETWEEN - 1); set(mixed(i / (BETWEEN - 1))); } }, picture(images, i, 56, ""))));
  });
  arrows(way, "button");
  const keep = (name) => h("button", { type: "button", id: `keep-${name}`, onclick: () => { ends[name] = [...code]; redrawWay(); tell(`${name} is the present code`); } }, `Make this ${name}`);

  // One variable at a time.
  const rows = h("div", { id: "walks" });
  const walks = latest(async () => {
    const latents = space.variables.slice(0, 12).map((v) => v.number);
    const { codes } = await post(of(id, "/walks"), { start: [...code], latents, steps: 9 });
    const images = await decoded(id, codes.flat(), shape);
    rows.replaceChildren(...codes.map((line, i) => {
      const v = space.variables[i];
      return h("div", { class: "walk" }, h("div", {}, badge(v.kind, `z${v.number}`), h("div", { class: "what hint" }, v.factor ? `encodes ${v.factor}` : v.kind)),
        arrows(h("div", { class: "gallery" }, line.map((at, j) => h("button", { type: "button", "aria-label": `z${v.number} at ${at[v.number].toFixed(2)}`, onclick: () => set(at) }, picture(images, i * line.length + j, 56, "")))), "button"));
    }));
  });

  const random = () => set(space.variables.reduce((all, v) => { all[v.number] = gauss() * v.spread; return all; }, []));
  place.append(
    h("div", { class: "explore" },
      h("div", { class: "shown" }, big, h("div", { class: "pair" }, h("figure", {}, original, h("figcaption", {}, "example")), h("figure", {}, again, h("figcaption", {}, "reconstruction"))), took),
      h("div", { class: "card" }, h("div", { class: "row" }, h("h2", { class: "grow" }, "Latent variables"),
        h("button", { type: "button", onclick: () => set(code.map(() => 0)) }, "All to 0"), h("button", { type: "button", onclick: random }, "Random"), h("button", { type: "button", onclick: walks }, "Traverse from here")),
        h("p", { class: "hint" }, "The most used first. Arrow keys move a slider; a double click sets it to 0."), list)),
    h("div", { class: "card" }, h("h2", {}, "Start from an example"), h("p", { class: "hint" }, "Click an image to take its code."), gallery),
    h("div", { class: "card" }, h("div", { class: "row" }, h("h2", { class: "grow" }, "Between two codes"), keep("A"), keep("B")), h("p", { class: "hint" }, "A straight line from the code A to the code B."), along, way),
    h("div", { class: "card" }, h("h2", {}, "Traversals"), h("p", { class: "hint" }, "Each variable is changed from the present code over its range on the data. Click an image to continue from it."), rows));
  redrawWay();
  const row = state.memory.row ?? shown[0];
  await start(row, gallery.querySelector(`[data-row="${Number(row)}"]`));
}

export function describe(space, row) {
  const values = space.values[row] || [];
  return space.factors.map((factor, i) => `${factor.name} ${number(values[i])}`).join(", ") || `number ${space.numbers[row]}`;
}

function gauss() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}
