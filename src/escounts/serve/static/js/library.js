// The list of videos: uploads under way, jobs under way, and what was counted before.

import { api, upload } from "./api.js";
import { byId, bytes, clock, element, left, percent, repetitions, toast } from "./format.js";

const ACTIVE = new Set(["queued", "running"]);
const RING = 2 * Math.PI * 20;

export class Library {
  /** onOpen(video), onGone(id), onNew(video). */
  constructor({ onOpen, onGone, onNew }) {
    this.onOpen = onOpen;
    this.onGone = onGone;
    this.onNew = onNew;
    this.videos = new Map();
    this.uploads = new Map();
    this.selected = null;
  }

  async refresh() {
    const videos = await api.videos();
    this.videos = new Map(videos.map((video) => [video.id, video]));
    this.draw();
  }

  /** A job changed: it becomes the newest of its video, unless a newer one is known. */
  update(job) {
    const video = this.videos.get(job.video);
    if (!video) return false;
    if (!video.job || video.job.created <= job.created) video.job = job;
    this.draw();
    return true;
  }

  select(id) {
    this.selected = id;
    this.draw();
  }

  async add(file, { name = file.name, source = "upload" } = {}) {
    const key = Symbol(name);
    const entry = { name, size: file.size, fraction: 0, left: null };
    const sending = upload(file, name, source, (fraction, seconds) => {
      Object.assign(entry, { fraction, left: seconds });
      this.draw();
    });
    entry.cancel = sending.cancel;
    this.uploads.set(key, entry);
    this.draw();
    try {
      await this.count(await sending.promise);
    } catch (error) {
      if (error.status !== -1) toast(`${name}: ${error.message}`);
    } finally {
      this.uploads.delete(key);
      this.draw();
    }
  }

  /** Takes a video that is on the server and has it counted. */
  async count(video) {
    this.videos = new Map([[video.id, video], ...this.videos]);
    const job = await api.count(video.id);
    video.job ??= job;
    this.draw();
    this.onNew(video);
  }

  async remove(id) {
    await api.deleteVideo(id);
    this.videos.delete(id);
    this.draw();
    this.onGone(id);
  }

  draw() {
    const cards = [
      ...[...this.uploads.values()].map((entry) => this.#uploadCard(entry)),
      ...[...this.videos.values()].map((video) => this.#videoCard(video)),
    ];
    const focused = document.activeElement?.closest?.(".video-card")?.dataset.id;
    byId("videos").replaceChildren(...(cards.length ? cards : [element("li", { class: "videos-empty" }, "Nothing here yet.")]));
    byId("video-total").textContent = this.videos.size ? `· ${this.videos.size}` : "";
    if (focused) byId("videos").querySelector(`[data-id="${focused}"] .video-open`)?.focus();
  }

  #uploadCard(entry) {
    const meta = `Uploading ${bytes(entry.size)} · ${left(entry.left) || percent(entry.fraction)}`;
    return element(
      "li", { class: "video-card uploading" },
      element("div", { class: "video-open" }, ring(entry.fraction), title(entry.name, meta)),
      element("button", { class: "video-stop", "aria-label": `Cancel uploading ${entry.name}`, onclick: entry.cancel }, "×"),
    );
  }

  #videoCard(video) {
    const { job } = video;
    const active = job && ACTIVE.has(job.state);
    const card = element(
      "li", { class: `video-card${video.id === this.selected ? " selected" : ""}` },
      element(
        "button",
        { class: "video-open", "aria-current": video.id === this.selected ? "true" : null, onclick: () => this.onOpen(video) },
        badge(job), title(video.name, meta(video)),
      ),
      active
        ? element("button", { class: "video-stop", "aria-label": `Cancel counting ${video.name}`, onclick: () => api.cancel(job.id).catch((e) => toast(e.message)) }, "×")
        : null,
    );
    card.dataset.id = video.id;
    card.dataset.state = job?.state ?? "new";
    return card;
  }
}

const title = (name, text) =>
  element("span", { class: "video-text" }, element("span", { class: "video-name" }, name), element("span", { class: "video-meta" }, text));

function badge(job) {
  if (!job) return element("span", { class: "badge" }, "–");
  if (ACTIVE.has(job.state)) return ring(job.progress);
  if (job.state === "done") return element("span", { class: `badge${job.unsure ? " unsure" : ""}` }, String(job.count));
  return element("span", { class: `badge${job.state === "failed" ? " failed" : ""}` }, job.state === "failed" ? "!" : "–");
}

function ring(fraction) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 46 46");
  svg.setAttribute("aria-hidden", "true");
  for (const offset of [0, RING * (1 - fraction)]) {
    const circle = svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
    for (const [key, value] of Object.entries({ cx: 23, cy: 23, r: 20, "stroke-dasharray": RING, "stroke-dashoffset": offset })) {
      circle.setAttribute(key, value);
    }
  }
  return element("span", { class: "badge busy" }, svg, percent(fraction));
}

function meta(video) {
  const { job } = video;
  if (job?.state === "queued") return "Waiting";
  if (job?.state === "running") return `Counting · ${left(job.remaining_s) || "starting"}`;
  if (job?.state === "failed") return job.error ?? "Failed";
  if (job?.state === "cancelled") return "Cancelled";
  const length = video.duration ? `${clock(video.duration, 0)} · ` : "";
  if (!job) return `${length}not counted`;
  return `${length}${job.count} ${repetitions(job.count)} · ${job.unsure ? "not sure" : `${percent(job.confidence)} sure`}`;
}
