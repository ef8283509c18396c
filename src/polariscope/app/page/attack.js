// An attack on one image, played step by step.
import { arrows, blobOf, examples, get, h, number, of, paint, picture, post } from "./dom.js";

export async function attackTab(place, state) {
  const about = await get(of(state.id, "/classifier"));
  const pictures = await examples(state.id, about.numbers, about.shape, "classifier");
  const gallery = arrows(h("div", { class: "gallery", role: "group", "aria-label": "Held-out images" }), "button");
  const norm = h("select", { id: "norm", onchange: list }, about.norms.map((name) => h("option", { value: name }, { l2: "L2", linf: "L∞", l0: "L0 (pixels)" }[name] || name)));
  norm.value = "l2";
  const attack = h("select", { id: "attack" });
  const go = h("button", { type: "button", class: "main", id: "go", onclick: run }, "Attack it");
  const stage = h("div");
  let chosen = 0;

  function list() {
    const fit = Object.entries(about.attacks).filter(([, norms]) => norms.includes(norm.value)).map(([name]) => name);
    attack.replaceChildren(...fit.map((name) => h("option", { value: name }, name)));
    attack.value = ["ddn", "pgd", "sigma-zero"].find((name) => fit.includes(name)) || fit[0];
  }
  function choose(i) { chosen = i; [...gallery.children].forEach((button, j) => button.setAttribute("aria-pressed", i === j)); }
  about.numbers.forEach((n, i) => gallery.append(h("button", { type: "button", "aria-pressed": i === 0, onclick: () => choose(i) }, picture(pictures, i, 48, `Image ${n}, ${about.target} ${about.labels[i]}`))));
  list();

  async function run() {
    go.disabled = true;
    stage.replaceChildren(h("p", { class: "muted" }, "Attacking …"));
    try { await play(await post(of(state.id, "/attack"), { number: about.numbers[chosen], attack: attack.value, norm: norm.value })); } catch (error) { stage.replaceChildren(h("p", { class: "error" }, error.message)); }
    go.disabled = false;
  }

  async function play(played) {
    const bitmap = await createImageBitmap(blobOf(played.png));
    const images = { bitmap, width: about.shape[2], height: about.shape[1] };
    const steps = played.distances.length;
    const shown = h("canvas", { role: "img", id: "attacked", "aria-label": "The attacked image" }), change = h("canvas", { role: "img", "aria-label": "What the attack has added" });
    const words = h("p", { class: "hint", role: "status" }), bars = h("div", { id: "probabilities" });
    const slider = h("input", { type: "range", min: 0, max: steps - 1, value: 0, id: "step", "aria-label": "Step of the attack", oninput: draw });
    let timer = 0;
    const button = h("button", { type: "button", onclick: () => (timer ? pause() : start()) }, "Play");
    const pause = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
    const start = () => { if (Number(slider.value) === steps - 1) slider.value = 0; button.textContent = "Pause"; timer = setInterval(() => { slider.value = Number(slider.value) + 1; draw(); if (Number(slider.value) >= steps - 1) pause(); }, 160); };
    state.onLeave(pause);
    function draw() {
      const at = Number(slider.value), chances = played.probabilities[at], winner = chances.indexOf(Math.max(...chances));
      paint(shown, images, at);
      paint(change, images, steps + at);
      words.textContent = `Step ${at + 1} of ${steps}: after ${number(played.queries[at])} queries, at distance ${number(played.distances[at])}.`;
      bars.replaceChildren(...chances.map((chance, i) => { const bar = h("i"); bar.style.width = `${(100 * chance).toFixed(1)}%`; return h("div", { class: `probability ${i === played.label ? "true" : i === winner ? "wrong" : ""}` }, `${about.target} ${i}`, bar, `${(100 * chance).toFixed(0)} %`); }));
    }
    stage.replaceChildren(h("p", {}, h("b", {}, played.headline)), h("div", { class: "row" }, button, h("div", { class: "grow" }, slider)), words,
      h("div", { class: "grid" }, h("div", { class: "pair" }, h("figure", {}, shown, h("figcaption", {}, "the image")), h("figure", {}, change, h("figcaption", {}, `the change, grey is none (up to ${number(played.largest)})`))), bars));
    draw();
  }
  place.append(h("div", { class: "card" }, h("h2", {}, "Choose a held-out image and an attack"), h("p", { class: "hint" }, `The classifier predicts the ${about.target}. An attack searches for the smallest change that misleads it.`), gallery, h("p"),
    h("div", { class: "row end" }, h("label", { class: "field" }, "Norm", norm), h("label", { class: "field" }, "Attack", attack), go)), h("div", { class: "card" }, stage));
  stage.append(h("p", { class: "muted" }, "The attack is shown here."));
}
