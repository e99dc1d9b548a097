// The list of videos: uploads under way, jobs under way, and what was counted before.

import { api, upload } from "./api.js";
import { Cards, uploadView, videoView } from "./cards.js";
import { ask } from "./dialogs.js";
import { byId, element, toast } from "./format.js";

const KINDS = [
  ["all", "All", () => true],
  ["labelled", "Labelled", (video) => video.labelled],
  ["unsure", "Not sure", (video) => video.job?.state === "done" && video.job.unsure && !video.labelled],
  ["failed", "Failed", (video) => video.job?.state === "failed" && !video.labelled],
];
const FEW = 6; // a list this short needs no filter

export class Library {
  /** onOpen(video): chosen by hand. onNew(video): just added, to be shown. onGone(id): deleted. */
  constructor({ onOpen, onGone, onNew }) {
    this.onOpen = onOpen;
    this.onGone = onGone;
    this.onNew = onNew;
    this.videos = new Map();
    this.uploads = new Map();
    this.selected = null;
    this.kind = "all";
    this.cards = new Cards(byId("videos"));
    this.drawing = false;
    byId("filter").oninput = () => this.draw();
    byId("remove-failed").onclick = () => this.#removeFailed();
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

  /** One object per video for as long as the page is open: the stage and the cards hold on to it. */
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

  labelled(id, labels) {
    const video = this.videos.get(id);
    if (!video) return;
    Object.assign(video, { labelled: true, labelled_count: labels.spans.length, action: labels.action, expires: null });
    this.draw();
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

  async #removeFailed() {
    const failed = this.#matching("failed");
    const text = `${failed.length === 1 ? "The video" : `${failed.length} videos`} that could not be counted will be deleted.`;
    if ((await ask("Remove what failed?", text, [["remove", "Remove", "danger"], ["", "Keep", ""]])) !== "remove") return;
    for (const { id } of failed) await this.#removeUncounted(id).catch((error) => toast(error.message));
  }

  /** Not a video of which only the newest recount failed. */
  async #removeUncounted(id) {
    const jobs = await api.jobs(id);
    if (!jobs.some((job) => job.state === "done")) await this.remove(id);
  }

  #matching(kind) {
    const matches = KINDS.find(([name]) => name === kind)[2];
    return [...this.videos.values()].filter(matches);
  }

  /** Once per frame at most, however much is heard in between. */
  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.#drawNow();
    });
  }

  #drawNow() {
    const text = byId("filter").value.trim().toLowerCase();
    if (this.kind !== "all" && !this.#matching(this.kind).length) this.kind = "all";
    const shown = this.#matching(this.kind).filter((video) => video.name.toLowerCase().includes(text));
    const views = [...this.uploads].map(([key, entry]) => [key, uploadView(entry)]);
    views.push(...shown.map((video) => [video.id, videoView(video, video.id === this.selected, this.onOpen)]));
    this.cards.draw(views, this.videos.size ? "No video matches." : "Nothing here yet.");
    this.#drawKinds();
    const failed = this.#matching("failed").length;
    byId("remove-failed").hidden = failed === 0;
    byId("remove-failed").textContent = `Remove ${failed} failed`;
    byId("finding").hidden = this.videos.size < FEW && this.kind === "all" && !text;
    byId("teach-open").hidden = this.videos.size === 0;
    byId("layout").classList.toggle("empty", this.videos.size + this.uploads.size === 0);
    byId("video-total").textContent = this.videos.size ? `· ${this.videos.size}` : "";
  }

  #drawKinds() {
    const counts = KINDS.map(([kind, name]) => [kind, name, this.#matching(kind).length]);
    const signature = JSON.stringify([this.kind, counts]);
    if (signature === this.kindsDrawn) return;
    this.kindsDrawn = signature;
    byId("kinds").replaceChildren(
      ...counts.filter(([kind, , count]) => count > 0 || kind === "all").map(([kind, name, count]) =>
        element(
          "button",
          { class: "kind", "data-kind": kind, "aria-pressed": String(kind === this.kind), onclick: () => { this.kind = kind; this.draw(); } },
          `${name} ${count}`,
        )),
    );
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
