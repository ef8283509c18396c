// Elements, answers of the server, and pictures. Text goes into the page as text and never as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "fill" || name === "stroke") element.style[name] = value; // styles know the page's colours
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

async function answered(response) {
  if (response.ok) return response;
  let words = `the server answered ${response.status}`;
  const text = await response.text();
  try { words = JSON.parse(text).error || words; } catch { words = text || words; }
  throw new Error(words);
}

export async function get(path) {
  return (await answered(await fetch(path))).json();
}

export async function post(path, body = {}) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  return (await answered(response)).json();
}

export function of(run, what = "") {
  return `/api/runs/${encodeURIComponent(run)}${what}`;
}

let hush = 0;
export function tell(words) {
  const place = document.getElementById("says");
  place.textContent = words;
  place.classList.add("shown");
  clearTimeout(hush);
  hush = setTimeout(() => place.classList.remove("shown"), 5000);
}

export function problem(error) {
  return h("p", { class: "error", role: "alert" }, String(error.message || error));
}

export function badge(kind, words = kind) {
  return h("span", { class: `badge ${String(kind).replaceAll(" ", "-")}` }, words);
}

// Pictures: the server sends several side by side in one PNG; each is then drawn where it belongs.
export async function strip(response, shape) {
  const kind = response.headers.get("content-type") || "";
  if (kind.startsWith("application/json")) return { values: (await response.json()).values };
  const bitmap = await createImageBitmap(await response.blob());
  return { bitmap, width: shape[2], height: shape[1], count: Math.round(bitmap.width / shape[2]) };
}

export async function decoded(run, codes, shape) {
  const response = await fetch(of(run, "/decode"), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ codes }) });
  return strip(await answered(response), shape);
}

export async function examples(run, numbers, shape, kind = "space") {
  return strip(await answered(await fetch(`${of(run, "/examples")}?of=${kind}&numbers=${numbers.join(",")}`)), shape);
}

// A PNG that came inside an answer, as text.
export function blobOf(text) {
  return new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], { type: "image/png" });
}

export function paint(canvas, pictures, number = 0) {
  const context = canvas.getContext("2d");
  if (pictures.values) { // points: a bar for each number
    const values = pictures.values[number];
    canvas.width = 320; canvas.height = 160;
    const top = Math.max(1e-9, ...values.map(Math.abs)), wide = 320 / values.length;
    const colour = getComputedStyle(canvas).getPropertyValue("--active") || "#5aa9e6";
    context.clearRect(0, 0, 320, 160);
    context.fillStyle = colour;
    values.forEach((value, i) => context.fillRect(i * wide, value > 0 ? 80 - 76 * value / top : 80, Math.max(1, wide - 1), 76 * Math.abs(value) / top));
    return;
  }
  if (canvas.width !== pictures.width || canvas.height !== pictures.height) { canvas.width = pictures.width; canvas.height = pictures.height; }
  context.drawImage(pictures.bitmap, number * pictures.width, 0, pictures.width, pictures.height, 0, 0, pictures.width, pictures.height);
}

export function picture(pictures, number, size, label) {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  paint(canvas, pictures, number);
  canvas.style.width = `${size}px`;
  return canvas;
}

// Only the newest wish counts: while one is being answered, the ones between are forgotten.
export function latest(work) {
  let busy = false, waiting = null;
  return async function ask(...wish) {
    if (busy) { waiting = wish; return; }
    busy = true;
    try { await work(...wish); } catch (error) { tell(String(error.message || error)); }
    busy = false;
    if (waiting) { const next = waiting; waiting = null; ask(...next); }
  };
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return String(value);
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

export function ago(time) {
  const seconds = (Date.now() - new Date(time)) / 1000;
  const steps = [[60, 1, "second"], [3600, 60, "minute"], [86400, 3600, "hour"], [Infinity, 86400, "day"]];
  const [, size, unit] = steps.find(([limit]) => seconds < limit);
  const count = Math.max(0, Math.round(seconds / size));
  return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
}

// Arrow keys, Home and End move along a row of buttons.
export function arrows(place, selector) {
  place.addEventListener("keydown", (event) => {
    const all = [...place.querySelectorAll(selector)], at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || !all[to]) return;
    event.preventDefault();
    all[to].focus();
    all[to].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return place;
}
