// The page of a run: what it is, and a tab for each thing that can be done with it.
import { ago, arrows, badge, get, h, number, of, post, problem, tell } from "./dom.js";
import { explore } from "./explore.js";
import { codesMap } from "./map.js";
import { curves } from "./charts.js";
import { attackTab } from "./attack.js";
import { generateTab } from "./generate.js";
import { mapsTab } from "./maps.js";

export async function runPage(place, [id, wanted], onLeave) {
  let about = await get(of(id));
  let space = null, gone = false;
  onLeave(() => { gone = true; });
  const spaceOf = () => (space ??= get(of(id, "/space")).catch((error) => { space = null; throw error; }));
  const state = { id, spaceOf, onLeave, about: () => about, memory: {} };
  const head = h("div"), controls = h("div", { class: "row" }), jobs = h("div");
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "What to look at" });
  const panel = h("div", { role: "tabpanel", tabindex: "0", id: "panel" });
  place.append(head, controls, jobs, tabs, panel);

  const all = [
    ["explore", "Explore", () => about.trained && about.decodes, explore],
    ["map", "Map of codes", () => about.trained && about.encodes, codesMap],
    ["variables", "Variables", () => about.trained && about.encodes, variables],
    ["learning", "Learning", () => true, curves],
    ["attack", "Attack", () => about.trained && about.classifies, attackTab],
    ["generate", "Generate", () => about.trained && about.property, generateTab],
    ["maps", "Maps", () => about.maps, mapsTab],
    ["documents", "Documents", () => true, documents],
    ["settings", "Settings", () => true, settings],
  ];

  function drawHead() {
    const title = about.name || about.title || about.id;
    document.title = `${title} – Polariscope`;
    head.replaceChildren(h("div", {}, h("p", { class: "hint" }, h("a", { href: "#/" }, "Runs"), " / ", about.id),
      h("h1", {}, title), about.title && about.title !== title ? h("p", { class: "muted" }, about.title) : null,
      h("p", {}, badge(about.status), " ", h("span", { class: "muted" }, `${number(about.step ?? 0)}${about.steps ? ` of ${number(about.steps)}` : ""} steps · changed ${ago(about.updated)}`), " ", (about.tags || []).map((tag) => h("span", { class: "tag" }, tag))),
      about.note ? h("p", {}, about.note) : null, about.problem ? problem(about.problem) : null));
    const busy = about.jobs.some((job) => job.state === "running");
    const can = about.kind === "train";
    controls.replaceChildren(...[
      can && ["interrupted", "queued", "failed", "diverged"].includes(about.status) ? action("Resume the training", "resume", "main") : null,
      can && about.status === "running" ? action("Stop the training", "stop") : null,
      ...(about.trained && about.status !== "running" ? about.commands : []).map((command) =>
        h("button", { type: "button", disabled: busy, onclick: () => act(of(id, "/start"), { command }) }, { examine: "Examine it", kernel: "Diagnose its kernels", robustness: "Measure its robustness", corruptions: "Corrupt its images", generalise: "Test its generalisation", invariance: "Test its invariance" }[command] || `Run ${command}`)),
      can && about.trained ? h("a", { href: `#/compare/${encodeURIComponent(id)}` }, "Compare with …") : null,
    ].filter(Boolean));
    jobs.replaceChildren(...about.jobs.slice(-2).map((job) => h("p", { class: "hint", role: "status" }, badge(job.state), ` ${job.command}`, job.lines.length ? h("span", { class: "small" }, job.lines.at(-1)) : null)));
  }

  const action = (words, what, kind = "") => h("button", { type: "button", class: kind, id: `do-${what}`, onclick: () => act(of(id, `/${what}`)) }, words);

  async function act(path, body) {
    try { await post(path, body); } catch (error) { tell(error.message); }
    setTimeout(refresh, 300);
  }

  let shown = "", inner = [];
  async function open(name) {
    inner.forEach((work) => work());
    inner = [];
    shown = name;
    for (const tab of tabs.children) { tab.setAttribute("aria-selected", tab.dataset.tab === name); tab.tabIndex = tab.dataset.tab === name ? 0 : -1; }
    const selected = tabs.querySelector(`[data-tab="${name}"]`);
    if (selected) tabs.scrollLeft = selected.offsetLeft - tabs.offsetLeft - 16; // on a phone it may lie outside
    const inside = h("div");
    panel.replaceChildren(inside);
    inside.append(h("p", { class: "muted" }, "One moment …"));
    try {
      const fresh = h("div");
      await all.find(([key]) => key === name)[3](fresh, { ...state, onLeave: (work) => inner.push(work), open });
      if (shown === name && !gone) inside.replaceWith(fresh);
    } catch (error) { inside.replaceChildren(problem(error)); }
    panel.dataset.tab = name;
  }
  onLeave(() => inner.forEach((work) => work()));

  function drawTabs() {
    const possible = all.filter(([, , can]) => can());
    if ([...tabs.children].map((tab) => tab.dataset.tab).join() === possible.map(([key]) => key).join()) return;
    tabs.replaceChildren(...possible.map(([key, title]) => h("button", { type: "button", role: "tab", "data-tab": key, "aria-controls": "panel", onclick: () => open(key) }, title)));
    const first = possible.some(([key]) => key === shown) ? shown : possible.some(([key]) => key === wanted) ? wanted : about.status === "running" ? "learning" : possible[0][0];
    return open(first);
  }

  async function refresh() {
    if (gone) return;
    const before = about;
    about = await get(of(id)).catch(() => about);
    if (before.updated !== about.updated) space = null;
    drawHead();
    drawTabs();
    if (before.documents.length !== about.documents.length && shown === "documents") open("documents");
  }
  arrows(tabs, "button");
  drawHead();
  await drawTabs();
  const timer = setInterval(() => { if (["running", "queued"].includes(about.status) || about.jobs.some((job) => ["running", "stopping"].includes(job.state))) refresh(); }, 1500);
  onLeave(() => clearInterval(timer));
}

async function variables(place, state) {
  const space = await state.spaceOf();
  const titles = ["No.", "Type", "Posterior variance", "Variance of mean", "KL (nats)", "Main factor", "How much"];
  const cell = (i, content) => h("td", { class: i === 5 ? "" : "number", "data-label": titles[i] }, content);
  const rows = space.variables.map((v) => h("tr", {}, h("td", {}, `z${v.number}`), h("td", {}, badge(v.kind), v.detail ? h("span", { class: "small" }, v.detail) : null),
    cell(2, number(v.mean_var)), cell(3, number(v.var_of_mean)), cell(4, number(v.kl)),
    cell(5, v.factor || h("span", { class: "muted" }, "nothing above chance")), cell(6, v.information === null ? "" : `${Math.round(100 * v.information)} %`)));
  place.append(h("div", { class: "card" }, h("h2", {}, "Latent variables"),
    h("p", { class: "hint" }, "The most used first. A variable with a posterior variance near 0 is used; near 1 it is noise that the decoder ignores."),
    h("div", { class: "scroll" }, h("table", { class: "told" }, h("thead", {}, h("tr", {}, titles.map((title, i) => h("th", { class: [2, 3, 4, 6].includes(i) ? "number" : "" }, title)))), h("tbody", {}, rows)))));
  if (space.information) {
    const cell = (share) => { const td = h("td", { title: `${(100 * share).toFixed(1)} %` }, share >= 0.005 ? String(Math.round(100 * share)) : ""); td.style.background = `color-mix(in srgb, var(--active) ${Math.round(100 * share)}%, var(--wash))`; td.style.color = share > 0.5 ? "var(--on)" : "var(--ink)"; return td; };
    place.append(h("div", { class: "card" }, h("h2", {}, "Which variable encodes which factor"),
      h("p", { class: "hint" }, `Per cent of each factor's entropy that each variable explains beyond chance, on ${number(space.codes.length)} examples. A disentangled model has at most one dark cell per row.`),
      h("div", { class: "scroll" }, h("table", { class: "matrix", id: "matrix" }, h("thead", {}, h("tr", {}, h("th"), space.factors.map((factor) => h("th", { scope: "col" }, factor.name)))),
        h("tbody", {}, space.variables.map((v) => h("tr", {}, h("th", { scope: "row" }, `z${v.number}`), space.information[v.number].map(cell))))))));
  }
  if (space.notes.length) place.append(h("div", { class: "card" }, h("h2", {}, "Notes"), h("ul", {}, space.notes.map((note) => h("li", {}, note)))));
}

async function documents(place, state) {
  const about = state.about();
  if (!about.documents.length) {
    place.append(h("p", { class: "muted" }, "This run has no report yet.", about.next ? ` ${about.next} makes one.` : ""));
    return;
  }
  const frame = h("iframe", { class: "report", sandbox: "", title: "Report" });
  const buttons = about.documents.map((one) => h("button", { type: "button", "data-kind": one.kind, onclick: () => show(one) }, one.kind[0].toUpperCase() + one.kind.slice(1)));
  const away = h("a", { target: "_blank", rel: "noopener" }, "Open it alone"), words = h("p");
  function show(one) {
    frame.src = away.href = `/documents/${encodeURIComponent(state.id)}/${encodeURIComponent(one.kind)}`;
    words.replaceChildren(h("b", {}, one.headline), h("span", { class: "small" }, `made ${ago(one.made)}`));
    buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.kind === one.kind));
  }
  place.append(h("div", { class: "row" }, buttons, away), h("p"), words, frame);
  show(about.documents[0]);
}

async function settings(place, state) {
  const about = state.about();
  const rows = [];
  const walk = (prefix, value) => {
    if (value && typeof value === "object" && !Array.isArray(value)) for (const [key, inner] of Object.entries(value)) walk(prefix ? `${prefix}.${key}` : key, inner);
    else rows.push([prefix, Array.isArray(value) ? value.join(", ") : String(value)]);
  };
  walk("", about.config);
  const table = (entries) => h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, entries.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))));
  place.append(h("div", { class: "grid" }, h("div", { class: "card" }, h("h2", {}, "Configuration"), table(rows)),
    h("div", { class: "card" }, h("h2", {}, "Results"), table(Object.entries(about.result).filter(([, v]) => typeof v !== "object").map(([k, v]) => [k, number(v, 5)])), h("h2", {}, "Environment"), table(Object.entries(about.environment).map(([k, v]) => [k, String(v)])))));
}
