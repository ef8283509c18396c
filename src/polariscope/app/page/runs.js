// The table of runs: search, filters, order; two of them can be chosen to be compared.
import { ago, badge, get, h, number } from "./dom.js";

const COLUMNS = [
  ["created", "Run", (run) => h("td", {}, h("a", { class: "name", href: `#/run/${encodeURIComponent(run.id)}` }, run.name || run.id), h("span", { class: "small" }, run.name ? run.id : "", (run.tags || []).map((tag) => h("span", { class: "tag" }, tag))))],
  ["status", "Status", (run) => h("td", {}, badge(run.status), run.status === "running" && run.steps ? h("span", { class: "small" }, `${number(run.step || 0)} of ${number(run.steps)}`) : null)],
  ["data", "Data", (run) => h("td", {}, run.data || "")],
  ["objective", "Objective", (run) => h("td", {}, run.objective || run.kind)],
  ["step", "Steps", (run) => h("td", { class: "number", "data-label": "steps" }, number(run.step))],
  ["held_out_loss", "Held-out loss", (run) => h("td", { class: "number", "data-label": "held-out loss" }, number(run.held_out_loss ?? run.train_loss, 4))],
  ["mig", "MIG", (run) => h("td", { class: "number", "data-label": "MIG" }, number(run.mig))],
  ["age", "Made", (run) => h("td", { class: "number" }, h("span", { title: run.created }, ago(run.created)))],
];

export async function runsPage(place, _, onLeave) {
  const order = { key: "created", down: true };
  const chosen = new Set();
  let runs = [], problems = [], folder = "";
  const search = h("input", { type: "search", id: "search", placeholder: "Search by name, data, objective, tag, setting …", "aria-label": "Search the runs", class: "grow", oninput: draw });
  const filters = Object.fromEntries(["status", "objective", "data"].map((key) => [key, h("select", { "aria-label": `Only runs with this ${key}`, onchange: draw })]));
  const count = h("p", { class: "hint", role: "status" });
  const head = h("tr"), body = h("tbody");
  const comparing = h("a", { href: "#/compare", class: "hint" });
  const table = h("table", { class: "runs" }, h("thead", {}, head), body);
  place.append(h("h1", {}, "Runs"), count,
    h("div", { class: "card" }, h("div", { class: "row" }, search, ...Object.values(filters)), h("div", { class: "scroll" }, table), comparing));

  function options() {
    for (const [key, select] of Object.entries(filters)) {
      const now = select.value, values = [...new Set(runs.map((run) => run[key]).filter(Boolean))].sort();
      select.replaceChildren(h("option", { value: "" }, `Any ${key}`), ...values.map((value) => h("option", { value }, value)));
      select.value = values.includes(now) ? now : "";
    }
  }

  function value(run, key) { return key === "age" ? run.created : key === "held_out_loss" ? run.held_out_loss ?? run.train_loss : run[key]; }

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.id, run.name, run.data, run.objective, run.model, run.status, run.kind, `seed ${run.seed}`, ...(run.tags || [])].join(" ").toLowerCase();
    const shown = runs.filter((run) => words.every((word) => text(run).includes(word)) && Object.entries(filters).every(([key, select]) => !select.value || run[key] === select.value));
    shown.sort((a, b) => {
      const [x, y] = [value(a, order.key), value(b, order.key)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * (order.down ? -1 : 1);
    });
    head.replaceChildren(h("th", { "aria-label": "Compare" }), ...COLUMNS.map(([key, title], i) => h("th", { class: i > 3 ? "number" : "", "aria-sort": order.key === key ? (order.down ? "descending" : "ascending") : "none" },
      h("button", { type: "button", onclick: () => { order.down = order.key === key ? !order.down : true; order.key = key; draw(); } }, title, order.key === key ? (order.down ? " ↓" : " ↑") : ""))));
    body.replaceChildren(...shown.map((run) => h("tr", { class: "link", "data-run": run.id },
      h("td", {}, run.kind === "train" ? h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `Compare ${run.name || run.id}`, onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](run.id); pick(); } }) : null),
      ...COLUMNS.map(([, , cell]) => cell(run)))));
    const nothing = runs.length ? `${shown.length} of ${runs.length} runs in ${folder}` : `There are no runs in ${folder} yet: 'polariscope demo' makes some, and Train starts one.`;
    count.textContent = problems.length ? `${nothing}; ${problems.length} folder${problems.length > 1 ? "s" : ""} skipped: ${problems[0]}` : nothing;
  }

  function pick() {
    const two = [...chosen].slice(0, 2);
    comparing.textContent = two.length === 2 ? "Compare the two chosen runs, layer by layer →" : two.length ? "Choose a second run to compare it with" : "";
    comparing.href = `#/compare/${two.map(encodeURIComponent).join("/")}`;
  }

  async function load() {
    ({ runs, problems, folder } = await get("/api/runs"));
    options();
    draw();
  }
  await load();
  const timer = setInterval(() => { if (runs.some((run) => ["running", "queued"].includes(run.status))) load().catch(() => {}); }, 3000);
  onLeave(() => clearInterval(timer));
  addEventListener("keydown", slash);
  onLeave(() => removeEventListener("keydown", slash));
  function slash(event) { if (event.key === "/" && document.activeElement.tagName !== "INPUT") { event.preventDefault(); search.focus(); } }
}
