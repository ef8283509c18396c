// Generation: a slider for each property, and examples that keep everything else.
import { blobOf, examples, get, h, latest, number, of, paint, picture, post } from "./dom.js";

const ROWS = 12;

export async function generateTab(place, state) {
  const about = await get(of(state.id, "/property"));
  const rows = spread(about.numbers.length, Math.min(ROWS, about.numbers.length));
  const kept = await examples(state.id, rows.map((row) => about.numbers[row]), about.shape);
  const wanted = about.low.map((low, i) => (low + about.high[i]) / 2);
  const title = (i) => (about.units[i] ? `${about.names[i]} (${about.units[i]})` : about.names[i]);
  const words = h("p", { class: "hint", role: "status", id: "property-words" });
  const grid = h("div", { class: "made", id: "made" });
  const cells = rows.map((row, i) => {
    const canvas = h("canvas", { role: "img", "aria-label": `Generated, with everything else of example ${about.numbers[row]}` });
    const caption = h("figcaption");
    grid.append(h("figure", {}, h("div", { class: "pair" }, picture(kept, i, 72, `Example ${about.numbers[row]}`), canvas), caption));
    return { canvas, caption };
  });

  const draw = latest(async (values) => {
    const begun = performance.now();
    const moved = await post(of(state.id, "/property"), { values, rows });
    const images = moved.png ? { bitmap: await createImageBitmap(blobOf(moved.png)), width: about.shape[2], height: about.shape[1] } : { values: moved.values };
    cells.forEach(({ canvas, caption }, i) => {
      paint(canvas, images, i);
      const [read, truth] = [moved.read[i], moved.true?.[i]].map((one) => one && one.map((value) => number(value)).join(", "));
      caption.textContent = truth ? `model predicts ${read}, true ${truth}` : `model predicts ${read}`;
    });
    const outside = values.map((value, i) => (value < about.low[i] || value > about.high[i] ? about.names[i] : null)).filter(Boolean);
    words.textContent = outside.length ? `${outside.join(", ")}: outside what the model predicts for training examples, so it may be unreachable.` : `Generated in ${(performance.now() - begun).toFixed(0)} ms.`;
    grid.dataset.values = values.map((value) => value.toFixed(4)).join(" ");
  });

  const sliders = about.names.map((name, i) => {
    const width = about.high[i] - about.low[i] || 1, output = h("output", {}, number(wanted[i]));
    const input = h("input", { type: "range", min: about.low[i] - 0.1 * width, max: about.high[i] + 0.1 * width, step: width / 200, "data-property": name, "aria-label": `Wanted ${title(i)}`,
      oninput: () => { wanted[i] = Number(input.value); output.textContent = number(wanted[i]); draw([...wanted]); } });
    input.value = wanted[i];
    return h("div", { class: "slider" }, h("div", {}, title(i), h("div", { class: "what" }, `${number(about.low[i])} to ${number(about.high[i])}`)), input, output);
  });
  place.append(h("div", { class: "card" }, h("h2", {}, "Wanted property"), h("p", { class: "hint" }, "Move a slider: the property changes, and everything else stays that of the example on the left. 'polariscope generate' adds an independent judge and intervals."), sliders, words),
    h("div", { class: "card" }, h("h2", {}, "Example and generated observation"), grid));
  draw([...wanted]);
}

function spread(count, wanted) {
  return Array.from({ length: wanted }, (_, i) => Math.floor(i * (count - 1) / Math.max(1, wanted - 1)));
}
