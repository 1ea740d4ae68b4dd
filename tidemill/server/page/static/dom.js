// Elements and texts. Nothing here makes HTML of a text: what comes from a server is always a text node.

/** Make an element. `props`: properties, attributes (aria-…, data-…, role, for), `class`, and listeners (onclick, …). */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && !name.includes("-") && name !== "role") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** Make an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Set a text, if it is another one: a selection by the user stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A duration as people say it: 0.8 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${Math.floor((s % 86400) / 3600) ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

export const count = (number) => (number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));

export function rate(number) {
  if (!number) return "0";
  return number < 10 ? number.toFixed(1) : count(number);
}

export function bytes(number) {
  let value = number || 0;
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return unit === "bytes" ? `${value} bytes` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return "";
}

const two = (number) => String(number).padStart(2, "0");

/** A moment in Unix seconds, in the browser's zone. */
export function moment(seconds, { date = true } = {}) {
  if (!seconds) return "–";
  const at = new Date(seconds * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return date ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}` : time;
}

/** Which colour a lag has. TiCDC's alert of a high delay comes at ten minutes. */
export const lagClass = (seconds) => (seconds === null || seconds === undefined ? "" : seconds >= 600 ? "bad" : seconds >= 60 ? "warn" : "");

let toastTimer = 0;

/** Say for some seconds how something went. */
export function toast(text, kind = "") {
  const place = byId("toasts");
  place.replaceChildren(el("div", { class: `toast ${kind}` }, text));
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.replaceChildren(), kind === "bad" ? 12000 : 5000);
}
