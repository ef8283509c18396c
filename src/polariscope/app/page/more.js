// Two runs side by side, a new training, and the claims board.
import { badge, get, h, number, post, problem } from "./dom.js";

export async function comparePage(place, [first, second]) {
  const { runs } = await get("/api/runs");
  const trained = runs.filter((run) => run.kind === "train" && run.step);
  const choice = (value, id) => { const select = h("select", { id, "aria-label": id }, h("option", { value: "" }, "Choose a run"), trained.map((run) => h("option", { value: run.id }, run.name || run.id))); select.value = value || ""; select.onchange = () => { location.hash = `#/compare/${encodeURIComponent(one.value)}/${encodeURIComponent(two.value)}`; }; return select; };
  const one = choice(first, "first"), two = choice(second, "second"), result = h("div");
  place.append(h("h1", {}, "Do two models learn the same representation?"), h("p", { class: "muted" }, "Every layer of one model is compared with every layer of the other, on the same examples (linear CKA; 1 is the same up to rotation and scale)."),
    h("div", { class: "card" }, h("div", { class: "row" }, one, h("span", {}, "and"), two)), result);
  if (!first || !second) return;
  result.append(h("p", { class: "muted", role: "status" }, "Comparing …"));
  try {
    const comparison = await get(`/api/compare?first=${encodeURIComponent(first)}&second=${encodeURIComponent(second)}`);
    const words = h("p", { class: "hint", role: "status" }, "Move over a cell or go there with the keyboard.");
    const cell = (i, j) => {
      const value = comparison.values[i][j], text = `${comparison.rows[i]} and ${comparison.columns[j]}: ${value.toFixed(2)}`;
      const td = h("td", { tabindex: "0", title: text, "aria-label": text, onmouseenter: () => { words.textContent = text; }, onfocus: () => { words.textContent = text; } });
      td.style.background = `color-mix(in srgb, var(--active) ${Math.round(100 * Math.max(0, Math.min(1, value)))}%, var(--wash))`;
      return td;
    };
    result.replaceChildren(h("div", { class: "card" }, h("h2", {}, comparison.headline), words,
      h("div", { class: "scroll" }, h("table", { class: "matrix heat", id: "heat" }, h("thead", {}, h("tr", {}, h("th"), comparison.columns.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, comparison.rows.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), comparison.columns.map((_, j) => cell(i, j))))))),
      comparison.notes.length ? h("ul", { class: "hint" }, comparison.notes.map((note) => h("li", {}, note))) : null));
  } catch (error) { result.replaceChildren(problem(error)); }
}

export async function trainPage(place) {
  const forms = await get("/api/forms");
  const world = h("select", { id: "world", onchange: describe }, forms.worlds.map((one) => h("option", { value: one.name }, one.name)));
  const objective = h("select", { id: "objective", onchange: describe }, forms.objectives.map((one) => h("option", { value: one.name }, one.name)));
  world.value = "sprites"; objective.value = "beta-vae";
  const field = (words, input) => h("label", { class: "field" }, words, input);
  const input = (id, value, more = {}) => h("input", { id, type: "number", value, ...more });
  const steps = input("steps", 2000, { min: 1 }), seed = input("seed", 0, { min: 0 }), latents = input("latents", 10, { min: 1 });
  const name = h("input", { id: "name", placeholder: "optional", maxlength: 100 });
  const words = h("p", { class: "hint" }), numbers = h("div", { class: "row end" }), wrong = h("div");
  const go = h("button", { class: "main", id: "train" }, "Start the training");
  function describe() {
    const one = forms.objectives.find((entry) => entry.name === objective.value);
    words.textContent = `${forms.worlds.find((entry) => entry.name === world.value)?.about || ""} ${one?.about || ""}`;
    numbers.replaceChildren(...(one?.settings || []).map((setting) => field(setting.name.replaceAll("_", " "), h("input", { type: "number", step: setting.whole ? 1 : "any", value: setting.default, "data-setting": setting.name, id: `setting-${setting.name}` }))));
  }
  const form = h("form", { class: "card" }, h("div", { class: "row end" }, field("World", world), field("Objective", objective), field("Steps", steps), field("Latent variables", latents), field("Seed", seed), field("Name", name)), h("p"), words, numbers, h("p"), go, wrong);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    const settings = Object.fromEntries([...numbers.querySelectorAll("[data-setting]")].map((one) => [one.dataset.setting, Number(one.value)]));
    try {
      const { run } = await post("/api/trainings", { world: world.value, objective: objective.value, settings, steps: Number(steps.value), latents: Number(latents.value), seed: Number(seed.value), name: name.value });
      location.hash = `#/run/${encodeURIComponent(run)}/learning`;
    } catch (error) { wrong.replaceChildren(problem(error)); go.disabled = false; }
  });
  place.append(h("h1", {}, "Train a model"), h("p", { class: "muted" }, "This starts 'polariscope train', which has many more settings, in a process of its own. You can stop and resume it."), form);
  describe();
}

export async function boardPage(place) {
  const board = await get("/api/board");
  place.append(h("h1", {}, "Claims"), h("p", { class: "muted" }, board.headline));
  const only = h("select", { "aria-label": "Only claims with this verdict", id: "verdict" }, h("option", { value: "" }, "Any verdict"), [...new Set(board.rows.map((row) => row.verdict))].map((v) => h("option", { value: v }, v)));
  const search = h("input", { type: "search", placeholder: "Search …", "aria-label": "Search the claims", class: "grow" });
  const body = h("tbody");
  function draw() {
    const text = search.value.toLowerCase();
    body.replaceChildren(...board.rows.filter((row) => (!only.value || row.verdict === only.value) && Object.values(row).join(" ").toLowerCase().includes(text)).map((row) =>
      h("tr", {}, h("td", {}, h("b", {}, row.text), h("span", { class: "small" }, `${row.study} (${row.work}): ${row.tested}`)), h("td", {}, badge(row.verdict)), h("td", { "data-label": "Published" }, row.published), h("td", { "data-label": "Measured here" }, row.measured, row.note ? h("span", { class: "small" }, row.note) : null))));
  }
  only.onchange = search.oninput = draw;
  place.append(h("div", { class: "card" }, h("div", { class: "row" }, search, only), h("div", { class: "scroll" }, h("table", { class: "told" }, h("thead", {}, h("tr", {}, ["Claim", "Verdict", "Published", "Measured here"].map((title) => h("th", {}, title)))), body))));
  draw();
}
