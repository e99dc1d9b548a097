// Numbers as people read them, and elements as code writes them.

export function clock(seconds, digits = 1) {
  const value = Math.max(seconds || 0, 0);
  const rounded = Number(value.toFixed(digits));
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor((rounded % 3600) / 60);
  const rest = (rounded % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

export const span = (start, end) => `${start.toFixed(1)}–${end.toFixed(1)} s`;

export function bytes(size) {
  const units = ["B", "KB", "MB", "GB"];
  let power = 0;
  while (size >= 1000 && power < units.length - 1) {
    size /= 1024;
    power += 1;
  }
  return `${power ? size.toFixed(size < 10 ? 1 : 0) : size} ${units[power]}`;
}

export const percent = (fraction) => `${Math.round(fraction * 100)} %`;

/** As the command line and the files say it: never so much that it would be sure where it is not. */
export const confident = ({ confidence, unsure }) => percent(unsure ? Math.floor(100 * confidence) / 100 : Number(confidence.toFixed(2)));

export function left(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return "almost done";
  return seconds < 90 ? `${Math.ceil(seconds)} s left` : `${Math.ceil(seconds / 60)} min left`;
}

export const UNITS = { cycle: "both sides as one", side: "each side" };

export const repetitions = (count) => (count === 1 ? "repetition" : "repetitions");

/** element("button", { class: "x", onclick }, "text", child): attributes, properties that start with on, children. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An SVG element with attributes. */
export function drawn(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Said once: the same words again stay as long as if they were new. */
export function toast(message) {
  [...byId("toasts").children].find((shown) => shown.textContent === message)?.remove();
  const node = element("div", { class: "toast" }, message);
  byId("toasts").append(node);
  setTimeout(() => node.remove(), 7000);
}

export function announce(message) {
  byId("announcer").textContent = message;
}

/** Thousandths of a second, as they are kept. */
export const rounded = (seconds) => Math.round(seconds * 1000) / 1000;

export const day = (seconds) =>
  new Date(seconds * 1000).toLocaleDateString([], { day: "numeric", month: "long", year: "numeric" });
