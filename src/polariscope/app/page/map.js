// The codes in the plane, coloured by a factor; a click on one shows it and takes its code.
import { badge, decoded, examples, h, number, paint, s } from "./dom.js";
import { describe } from "./explore.js";

const WIDE = 760, HIGH = 560, EDGE = 34;
const CLASSES = ["var(--active)", "var(--mixed)", "var(--second)", "var(--first)", "var(--fourth)", "var(--third)", "var(--passive)", "var(--bad)"];

export async function codesMap(place, state) {
  const space = await state.spaceOf();
  const axes = [["plane 1", "First principal component"], ["plane 2", "Second principal component"], ...space.variables.map((v) => [`z ${v.number}`, `z${v.number} (${v.factor ? `encodes ${v.factor}` : v.kind})`])];
  const choose = (id, words, options, value) => { const select = h("select", { id, onchange: draw }, options.map(([v, t]) => h("option", { value: v }, t))); select.value = value; return [select, h("label", { class: "field" }, words, select)]; };
  const [x, xField] = choose("map-x", "Across", axes, "plane 1");
  const [y, yField] = choose("map-y", "Upwards", axes, "plane 2");
  const [colour, colourField] = choose("map-colour", "Colour", [["", "One colour"], ...space.factors.map((factor, i) => [String(i), factor.name])], space.factors.length ? "0" : "");
  const drawing = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": "Codes in the plane" });
  const legend = h("ul", { class: "legend", id: "map-legend" }), words = h("p", { class: "hint" });
  const seen = h("canvas", { role: "img", "aria-label": "The chosen example" }), made = h("canvas", { role: "img", "aria-label": "Its reconstruction" });
  const about = h("p", { class: "hint", role: "status" }, "Click a point to see it.");
  const take = h("button", { type: "button", disabled: true, onclick: () => state.open("explore") }, "Start from it");
  let chosen = -1;

  function column(name) {
    const [kind, at] = name.split(" ");
    return kind === "plane" ? space.plane.map((p) => p[Number(at) - 1]) : space.codes.map((c) => c[Number(at)]);
  }

  function draw() {
    const [across, up] = [column(x.value), column(y.value)];
    const scale = (values, from, to) => { const low = Math.min(...values), high = Math.max(...values); return (v) => from + (to - from) * (v - low) / (high - low || 1); };
    const [sx, sy] = [scale(across, EDGE, WIDE - 10), scale(up, HIGH - EDGE, 10)];
    const [paintOf, entries] = colouring(space, colour.value);
    const title = (name) => axes.find(([value]) => value === name)[1];
    drawing.replaceChildren(
      s("line", { x1: EDGE, x2: WIDE - 8, y1: HIGH - EDGE + 8, y2: HIGH - EDGE + 8, stroke: "var(--line)" }), s("line", { x1: EDGE - 8, x2: EDGE - 8, y1: 8, y2: HIGH - EDGE, stroke: "var(--line)" }),
      s("text", { x: WIDE / 2, y: HIGH - 8, "text-anchor": "middle" }, title(x.value)), s("text", { x: 14, y: HIGH / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${HIGH / 2})` }, title(y.value)),
      ...across.map((value, i) => s("circle", { cx: sx(value).toFixed(1), cy: sy(up[i]).toFixed(1), r: i === chosen ? 6 : 3.2, fill: paintOf(i), "fill-opacity": 0.78, class: i === chosen ? "chosen" : "", "data-row": i, onclick: () => pick(i) })));
    legend.replaceChildren(...entries.map(([paint, text]) => { const dot = h("i"); dot.style.background = paint; return h("li", {}, dot, text); }));
    const [a, b] = space.explained;
    words.textContent = x.value.startsWith("plane") && y.value.startsWith("plane") ? `${number(space.codes.length)} codes; the two components have ${Math.round(100 * (a + b))} % of their variance.` : `${number(space.codes.length)} codes.`;
  }

  async function pick(row) {
    chosen = row;
    draw();
    about.textContent = describe(space, row);
    take.disabled = !state.about().decodes;
    state.memory.row = row;
    paint(seen, await examples(state.id, [space.numbers[row]], space.shape));
    if (space.decodes) paint(made, await decoded(state.id, [space.codes[row]], space.shape));
  }

  const keys = h("div", { tabindex: "0", role: "application", "aria-label": "Map of codes: arrow keys go from point to point", onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    pick((chosen + step + space.codes.length) % space.codes.length);
  } }, drawing);
  place.append(h("div", { class: "card" }, h("div", { class: "row end" }, xField, yField, colourField), h("p"),
    h("div", { class: "map" }, keys, h("div", {}, legend, words, h("div", { class: "pair" }, seen, made), about, take))));
  draw();
}

function colouring(space, which) {
  if (which === "") return [() => "var(--active)", []];
  const at = Number(which), factor = space.factors[at], values = space.values.map((row) => row[at]);
  const different = [...new Set(values)].sort((a, b) => a - b);
  if (factor.kind === "categorical" || different.length <= 4) {
    const paint = (value) => CLASSES[different.indexOf(value) % CLASSES.length];
    return [(i) => paint(values[i]), different.slice(0, 16).map((value) => [paint(value), `${factor.name} ${number(value)}`])];
  }
  const low = different[0], high = different[different.length - 1];
  const shade = (value) => {
    const t = (value - low) / (high - low || 1);
    return factor.kind === "periodic" ? `hsl(${Math.round(360 * t)} 62% 52%)` : `color-mix(in oklab, var(--fourth) ${Math.round(100 * (1 - t))}%, var(--mixed))`;
  };
  return [(i) => shade(values[i]), [low, (low + high) / 2, high].map((value) => [shade(value), `${factor.name} ${number(value)}`])];
}
