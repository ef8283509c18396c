// Which page is shown: the part of the address behind # says it.
import { h, problem } from "./dom.js";
import { runsPage } from "./runs.js";
import { runPage } from "./run.js";
import { boardPage, comparePage, trainPage } from "./more.js";

const main = document.getElementById("main");
let leave = [];

export function onLeave(work) { leave.push(work); }

async function show() {
  leave.forEach((work) => work());
  leave = [];
  const [page = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const pages = { "": runsPage, run: runPage, compare: comparePage, new: trainPage, board: boardPage };
  const names = { "": "runs", run: "runs", compare: "compare", new: "new", board: "board" };
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.dataset.page === names[page]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = h("div");
  main.replaceChildren(place);
  try {
    if (!(page in pages)) throw new Error("there is no such page");
    await pages[page](place, rest, onLeave);
  } catch (error) {
    place.append(problem(error));
  }
  main.dataset.shown = location.hash || "#/";
}

const theme = document.getElementById("theme");
try { if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme; } catch { /* no storage: the system's choice */ }
theme.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.theme = document.documentElement.dataset.theme; } catch { /* it is kept until the page is closed */ }
});
addEventListener("hashchange", show);
show();
