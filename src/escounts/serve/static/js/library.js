// The list of videos: uploads under way, jobs under way, and what was counted before.

import { api, upload } from "./api.js";
import { byId, bytes, clock, element, left, percent, repetitions, toast } from "./format.js";

const ACTIVE = new Set(["queued", "running"]);
const RING = 2 * Math.PI * 20;

export class Library {
  /** onOpen(video): chosen by hand. onNew(video): just added, to be shown. onGone(id): deleted. */
  constructor({ onOpen, onGone, onNew }) {
    this.onOpen = onOpen;
    this.onGone = onGone;
    this.onNew = onNew;
    this.videos = new Map();
    this.uploads = new Map();
    this.cards = new Map();
    this.selected = null;
  }

  /** What the server has. Its answer may be older than what was done or heard while it was on its way. */
  async refresh() {
    const before = new Set(this.videos.keys());
    const listed = await api.videos();
    const ids = new Set(listed.map((video) => video.id));
    const added = [...this.videos.values()].filter((video) => !ids.has(video.id) && !before.has(video.id));
    const kept = listed.filter((video) => this.videos.has(video.id) || !before.has(video.id));
    this.videos = new Map([...added, ...kept.map((video) => this.#merged(video))].map((video) => [video.id, video]));
    this.draw();
  }

  /** One object a video for as long as the page is open: the stage and the cards hold on to it. */
  #merged(video) {
    const known = this.videos.get(video.id);
    if (!known) return video;
    return Object.assign(known, video, {
      job: newer(known.job, video.job),
      duration: video.duration ?? known.duration,
      labelled: video.labelled || known.labelled,
    });
  }

  /** A job changed: it becomes the newest of its video. False when something newer is known already. */
  update(job) {
    const video = this.videos.get(job.video);
    if (!video || newer(video.job, job) !== job) return false;
    video.job = job;
    this.draw();
    return true;
  }

  select(id) {
    this.selected = id;
    this.draw();
  }

  /** Several at once: the first is put on the stage, the others do not take it from whoever works there. */
  addAll(files) {
    files.forEach((file, index) => this.add(file, { show: index === 0 }));
  }

  async add(file, { name = file.name, source = "upload", show = true } = {}) {
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
      const video = await sending.promise.finally(() => this.uploads.delete(key));
      await this.count(video, show);
    } catch (error) {
      if (error.status !== -1) toast(`${name}: ${error.message}`);
      this.draw();
    }
  }

  /** Takes a video that is on the server and has it counted. */
  async count(sent, show = true) {
    const video = this.videos.get(sent.id) ?? sent;
    this.videos.delete(video.id);
    this.videos = new Map([[video.id, video], ...this.videos]);
    this.draw();
    const job = await api.count(video.id);
    if (video.job?.id !== job.id) this.update(job); // else the stream was quicker, and knows more
    if (show) this.onNew(video);
  }

  async remove(id) {
    await api.deleteVideo(id);
    this.videos.delete(id);
    this.draw();
    this.onGone(id);
  }

  /** Cards are kept and changed in place: a click on one is not lost because another makes progress. */
  draw() {
    const wanted = [...this.uploads].map(([key, entry]) => this.#card(key, uploadView(entry)));
    wanted.push(...[...this.videos.values()].map((video) => this.#card(video.id, this.#videoView(video))));
    for (const key of this.cards.keys()) {
      if (!this.uploads.has(key) && !this.videos.has(key)) this.cards.delete(key);
    }
    if (!wanted.length) wanted.push(element("li", { class: "videos-empty" }, "Nothing here yet."));
    const list = byId("videos");
    if (wanted.length !== list.children.length || wanted.some((node, i) => node !== list.children[i])) {
      list.replaceChildren(...wanted);
    }
    byId("video-total").textContent = this.videos.size ? `· ${this.videos.size}` : "";
  }

  #card(key, view) {
    if (!this.cards.has(key)) {
      const open = element("button", { class: "video-open" });
      const stop = element("button", { class: "video-stop" }, "×");
      this.cards.set(key, { node: element("li", {}, open, stop), open, stop });
    }
    const { node, open, stop } = this.cards.get(key);
    node.className = `video-card ${view.kind}`;
    Object.assign(node.dataset, view.data);
    open.replaceChildren(view.badge, title(view.name, view.meta));
    open.onclick = view.onOpen;
    open.disabled = !view.onOpen;
    if (view.kind === "selected") open.setAttribute("aria-current", "true");
    else open.removeAttribute("aria-current");
    stop.hidden = !view.onStop;
    stop.onclick = view.onStop;
    stop.setAttribute("aria-label", `${view.stopLabel ?? "Cancel"} ${view.name}`);
    return node;
  }

  #videoView(video) {
    const { job } = video;
    const active = job && ACTIVE.has(job.state);
    return {
      kind: video.id === this.selected ? "selected" : "",
      data: { id: video.id, state: job?.state ?? "new" },
      badge: badge(job),
      name: video.name,
      meta: meta(video),
      onOpen: () => this.onOpen(video),
      onStop: active ? () => api.cancel(job.id).catch((error) => toast(error.message)) : null,
      stopLabel: "Cancel counting",
    };
  }
}

/** The one of two states of a video's newest job that is newer: a job waits, runs, ends, and never goes back. */
function newer(known, job) {
  if (!known || !job) return job ?? known;
  if (known.id !== job.id) return known.created <= job.created ? job : known;
  return stages(job) < stages(known) ? known : job;
}

function stages(job) {
  return { queued: 0, running: 1 }[job.state] ?? 2;
}

function uploadView(entry) {
  return {
    kind: "uploading",
    data: { state: "uploading" },
    badge: ring(entry.fraction),
    name: entry.name,
    meta: `Uploading ${bytes(entry.size)} · ${left(entry.left) || percent(entry.fraction)}`,
    onOpen: null,
    onStop: entry.cancel,
    stopLabel: "Cancel uploading",
  };
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
