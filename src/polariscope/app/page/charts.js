// Learning curves, drawn again while a run trains.
import { get, h, number, of, s } from "./dom.js";

const WIDE = 460, HIGH = 240, LEFT = 52, BELOW = 26;

export async function curves(place, state) {
  const grid = h("div", { class: "grid", id: "curves" });
  const words = h("p", { class: "hint", role: "status" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the training" });
  place.append(bar, words, grid);
  let gone = false, last = "";
  state.onLeave(() => { gone = true; });

  async function load() {
    const { curves } = await get(of(state.id, "/curves"));
    if (gone) return;
    const about = state.about();
    const step = Math.max(about.step || 0, ...curves.map((curve) => curve.points.at(-1)?.[0] || 0));
    bar.value = about.steps ? step / about.steps : 0;
    bar.hidden = about.status === "done";
    words.textContent = curves.length ? `Step ${number(step)}${about.steps ? ` of ${number(about.steps)}` : ""}. Faint line: batches while training. Line with marks: held-out data.` : about.status === "running" ? "The learning curves have no points yet." : "This run has no learning curves.";
    const now = JSON.stringify(curves.map((curve) => [curve.term, curve.split, curve.points.length, curve.points.at(-1)]));
    if (now === last) return;
    last = now;
    const terms = [...new Set(curves.map((curve) => curve.term))];
    grid.replaceChildren(...terms.map((term) => h("div", { class: "card chart", "data-term": term, "data-step": step }, h("h2", {}, term.replaceAll("_", " ")), chart(curves.filter((curve) => curve.term === term), term))));
  }
  await load();
  const timer = setInterval(() => { if (["running", "queued"].includes(state.about().status) || bar.value < 1) load().catch(() => {}); }, 1200);
  state.onLeave(() => clearInterval(timer));
}

export function chart(lines, label) {
  const points = lines.flatMap((line) => line.points);
  const late = points.filter(([step]) => step >= 0.02 * Math.max(...points.map((p) => p[0])));
  const values = (late.length > 4 ? late : points).map((p) => p[1]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const most = Math.max(1, ...points.map((p) => p[0]));
  const x = (step) => LEFT + (WIDE - LEFT - 10) * step / most;
  const y = (value) => 10 + (HIGH - BELOW - 10) * (1 - (Math.min(value, high) - low) / (high - low || 1));
  const ticks = low < high ? [low, (low + high) / 2, high] : [low];
  const path = (line) => line.points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const draw = (line) => {
    const held = line.split === "held_out", colour = held ? "var(--first)" : "var(--active)";
    const marks = held && line.points.length < 60 ? line.points.map(([step, value]) => s("circle", { cx: x(step).toFixed(1), cy: y(value).toFixed(1), r: 2.6, fill: colour })) : [];
    return [s("path", { d: path(line), fill: "none", stroke: colour, "stroke-width": held ? 2 : 1.4, "stroke-opacity": held ? 1 : 0.55 }), ...marks];
  };
  return s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `Learning curve of ${label}: from ${number(points[0]?.[1])} to ${number(points.at(-1)?.[1])}` },
    ...ticks.flatMap((tick) => [s("line", { x1: LEFT, x2: WIDE - 10, y1: y(tick), y2: y(tick), stroke: "var(--line)" }), s("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick))]),
    s("text", { x: LEFT, y: HIGH - 6 }, "0"), s("text", { x: WIDE - 10, y: HIGH - 6, "text-anchor": "end" }, `${number(most)} steps`), ...lines.flatMap(draw));
}
