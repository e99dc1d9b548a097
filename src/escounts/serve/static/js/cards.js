// One card for each video of the list: picture, name, what is known, and the count.

import { api } from "./api.js";
import { bytes, clock, confident, drawn, element, left, percent, toast } from "./format.js";
import { Thumbnails } from "./thumbnails.js";

const ACTIVE = new Set(["queued", "running"]);
const RING = 2 * Math.PI * 20;

export class Cards {
  constructor(list) {
    this.list = list;
    this.cards = new Map();
    this.thumbnails = new Thumbnails(list);
    this.empty = element("li", { class: "videos-empty" });
  }

  /** views: [[key, view]] in order. Cards are kept and changed in place: a click is not lost to another's progress. */
  draw(views, emptyText) {
    const wanted = new Set(views.map(([key]) => key));
    for (const [key, card] of this.cards) {
      if (wanted.has(key)) continue;
      this.thumbnails.forget(card.image);
      this.cards.delete(key);
    }
    const nodes = views.map(([key, view]) => this.#card(key, view));
    this.empty.textContent = emptyText;
    if (!nodes.length) nodes.push(this.empty);
    const { children } = this.list;
    if (nodes.length !== children.length || nodes.some((node, i) => node !== children[i])) this.list.replaceChildren(...nodes);
  }

  #card(key, view) {
    let card = this.cards.get(key);
    if (!card) {
      card = newCard();
      this.cards.set(key, card);
    }
    Object.assign(card, { onOpen: view.onOpen, onStop: view.onStop });
    const signature = JSON.stringify([view, Boolean(view.onOpen), Boolean(view.onStop)]);
    if (signature !== card.signature) {
      card.signature = signature;
      fill(card, view);
      if (view.picture) this.thumbnails.watch(card.image, view.picture);
    }
    return card.node;
  }
}

function newCard() {
  const card = {
    image: element("img", { class: "thumb", alt: "", draggable: "false" }),
    text: element("span", { class: "video-text" }),
    badge: element("span"),
  };
  card.open = element("button", { class: "video-open", onclick: () => card.onOpen?.() }, element("span", { class: "thumb-box" }, card.image), card.text, card.badge);
  card.stop = element("button", { class: "video-stop", onclick: () => card.onStop?.() }, "×");
  card.node = element("li", {}, card.open, card.stop);
  return card;
}

function fill(card, view) {
  card.node.className = `video-card${view.selected ? " selected" : ""}${view.uploading ? " uploading" : ""}`;
  Object.assign(card.node.dataset, view.data);
  const tags = view.tags.map(([kind, text]) => element("span", { class: `tag ${kind}` }, text));
  card.text.replaceChildren(
    element("span", { class: "video-name", title: view.name }, view.name),
    element("span", { class: "video-meta" }, ...tags, view.meta),
  );
  card.badge.replaceChildren(...(view.fraction === null ? [view.number] : [ring(view.fraction), percent(view.fraction)]));
  card.badge.className = `badge ${view.badge}`;
  card.open.disabled = !view.onOpen;
  if (view.selected) card.open.setAttribute("aria-current", "true");
  else card.open.removeAttribute("aria-current");
  card.stop.hidden = !view.onStop;
  card.stop.setAttribute("aria-label", `${view.stopLabel} ${view.name}`);
}

export function uploadView(entry) {
  return {
    uploading: true,
    data: { state: "uploading" },
    fraction: entry.fraction,
    badge: "busy",
    name: entry.name,
    meta: `Uploading ${bytes(entry.size)} · ${left(entry.left) || percent(entry.fraction)}`,
    tags: [],
    onStop: entry.cancel,
    stopLabel: "Cancel uploading",
  };
}

export function videoView(video, selected, onOpen) {
  const { job } = video;
  const state = job?.state ?? "new";
  const active = ACTIVE.has(state);
  const unsure = state === "done" && job.unsure && !video.labelled;
  return {
    selected,
    data: { id: video.id, state },
    picture: state === "done" ? video.id : null,
    fraction: active ? job.progress : null,
    number: state === "done" ? String(video.labelled_count ?? job.count) : state === "failed" ? "!" : "–",
    badge: active ? "busy" : unsure ? "unsure" : state === "failed" ? "failed" : video.labelled ? "labelled" : "",
    name: video.name,
    meta: meta(video),
    tags: [
      ...(video.labelled ? [["labelled", "labelled"]] : []),
      ...(unsure ? [["unsure", "not sure"]] : []),
      ...(state === "failed" ? [["failed", "failed"]] : []),
    ],
    onOpen: () => onOpen(video),
    onStop: active ? () => api.cancel(job.id).catch((error) => toast(error.message)) : null,
    stopLabel: "Cancel counting",
  };
}

function ring(fraction) {
  const circle = (offset) => drawn("circle", { cx: 23, cy: 23, r: 20, "stroke-dasharray": RING, "stroke-dashoffset": offset });
  return drawn("svg", { viewBox: "0 0 46 46", "aria-hidden": "true" }, circle(0), circle(RING * (1 - fraction)));
}

function meta(video) {
  const { job } = video;
  if (job?.state === "queued") return "Waiting";
  if (job?.state === "running") return `Counting · ${left(job.remaining_s) || "starting"}`;
  if (job?.state === "failed") return (job.error ?? "").replace(`${video.name}: `, "");
  if (job?.state === "cancelled") return "Cancelled";
  const length = video.duration ? clock(video.duration, 0) : "";
  if (!job) return `${length} not counted`;
  if (video.labelled || job.unsure) return length;
  return `${length}${length ? " · " : ""}${confident(job)} sure`;
}
