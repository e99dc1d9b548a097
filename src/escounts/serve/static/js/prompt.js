// What is asked for: exemplars, the range, Recount, and the counts made before.

import { api } from "./api.js";
import { chooseRepetition } from "./borrow.js";
import { byId, element, percent, repetitions, rounded, span, toast, UNITS } from "./format.js";

const POLL_MS = 400;

export class Prompt {
  /**
   * timeline draws exemplars and range. onRegion(text or null): a box of the picture to keep to. onResult(job): a recount is there. onShow(jobId): an earlier one is wanted.
   * onCounting(text or null): a recount of the open video is under way. mayLeave(): whether corrections may go.
   */
  constructor(timeline, { onRegion, onResult, onShow, onCounting, mayLeave }) {
    this.timeline = timeline;
    this.onRegion = onRegion;
    this.region = null;
    this.each = false; // each place of the picture by itself
    this.onResult = onResult;
    this.onCounting = onCounting;
    this.mayLeave = mayLeave;
    this.video = null;
    this.duration = 0;
    this.exemplars = [];
    this.range = [0, 0];
    this.asked = null; // exemplars, range and region that the recount of the open video was given
    this.names = new Map();
    this.labelled = new Set(); // of these videos a person's repetitions are offered, not the model's
    this.counting = new Map(); // videos with a recount under way → how far it is, in words
    this.onShow = onShow;
    byId("recount").onclick = () => this.recount();
    byId("range-all").onclick = () => this.setRange(0, this.duration);
    byId("other").onchange = (event) => this.#borrow(event.target);
    for (const id of ["range-start", "range-end"]) byId(id).onchange = () => this.#typed();
    byId("each").onclick = () => {
      if (!this.each) this.setExemplars([]);
      this.#setEach(!this.each);
      this.recount();
    };
    byId("region").onchange = ({ target }) => this.setRegion(target.value.replaceAll(" ", "") || null);
  }

  /** Shows what a job was asked for; what was marked while it was counted stays. */
  open(video, duration, job) {
    const kept = video === this.video ? this.asked : null;
    this.video = video;
    this.duration = duration;
    this.#showRecount();
    if (!kept || this.region === kept.region) this.setRegion(job.region ?? null);
    if (!kept || this.each === kept.each) this.#setEach(job.each ?? false);
    if (!kept || this.exemplars === kept.exemplars) this.setExemplars(job.exemplars);
    if (!kept || this.range === kept.range) this.setRange(job.start ?? 0, Math.min(job.end ?? duration, duration));
  }

  setExemplars(exemplars) {
    if (exemplars.length) this.#setEach(false); // an example shows one place's motion
    this.exemplars = exemplars;
    const own = this.exemplars.filter((item) => item.video === null || item.video === this.video);
    this.timeline.setExemplars(own);
    this.#showChips();
  }

  setRegion(region) {
    this.region = region;
    byId("region").value = region ?? "";
    this.onRegion(region);
    this.#showChips();
  }

  countPlace(region) {
    this.#setEach(false);
    this.setRegion(region);
    this.recount();
  }

  #setEach(each) {
    this.each = each;
    byId("each").setAttribute("aria-pressed", String(each));
  }

  #showChips() {
    const box = this.region && chip("Box", () => this.setRegion(null));
    byId("exemplars").replaceChildren(...[box, ...this.exemplars.map((item, index) => this.#chip(item, index))].filter(Boolean));
  }

  addExemplar(start, end) {
    this.setExemplars([...this.exemplars, { start: rounded(start), end: rounded(end), video: null }]);
  }

  /** The timeline moved one of this video's own exemplars, or (null) asked to remove it. */
  moveExemplar(index, start, end) {
    const own = this.exemplars.filter((item) => item.video === null || item.video === this.video);
    const target = own[index];
    const moved = this.exemplars.map((item) =>
      item !== target ? item : start === null ? null : { ...item, start: rounded(start), end: rounded(end) },
    );
    this.setExemplars(moved.filter((item) => item !== null));
  }

  #chip(item, index) {
    const other = item.video && item.video !== this.video ? `${this.names.get(item.video) ?? "other video"} ` : "";
    return chip(`Example ${other}${span(item.start, item.end)}`, () => this.setExemplars(this.exemplars.filter((_, i) => i !== index)));
  }

  setRange(start, end) {
    this.range = [rounded(Math.max(start, 0)), Math.min(end, this.duration)];
    this.timeline.setRange(...this.range);
    byId("range-start").value = this.range[0].toFixed(1);
    byId("range-end").value = this.range[1].toFixed(1);
  }

  #typed() {
    const start = Number(byId("range-start").value) || 0;
    const end = Number(byId("range-end").value) || this.duration;
    if (end > start) this.setRange(start, end);
    else this.setRange(...this.range);
  }

  /** Other counted videos, one of whose repetitions can be borrowed as an example. */
  offer(videos) {
    this.names = new Map(videos.map((video) => [video.id, video.name]));
    this.labelled = new Set(videos.filter((video) => video.labelled).map((video) => video.id));
    const found = (video) => (video.labelled_count ?? video.job.count) > 0;
    const usable = videos.filter((video) => video.id !== this.video && video.job?.state === "done" && found(video));
    byId("other").replaceChildren(
      element("option", { value: "" }, usable.length ? "Choose…" : "No other counted video"),
      ...usable.map((video) => element("option", { value: video.job.id }, video.name)),
    );
    byId("other").disabled = usable.length === 0;
  }

  async #borrow(select) {
    const jobId = select.value;
    select.value = "";
    if (!jobId) return;
    try {
      const job = await api.job(jobId);
      const { video } = this;
      const labels = this.labelled.has(job.video) ? await api.labels(job.video) : null;
      const chosen = await chooseRepetition(job.video, labels?.spans ?? job.result.repetitions);
      if (!chosen || video !== this.video) return;
      this.setExemplars([...this.exemplars, { start: rounded(chosen.start), end: rounded(chosen.end), video: job.video }]);
    } catch (error) {
      toast(error.message);
    }
  }

  async recount() {
    const { video } = this;
    if (!video || this.counting.has(video) || !(await this.mayLeave())) return;
    const whole = this.range[0] <= 0.001 && this.range[1] >= this.duration - 0.06;
    const request = {
      exemplars: this.exemplars,
      each: this.each,
      start: whole ? null : this.range[0],
      end: whole ? null : rounded(this.range[1]),
      region: this.region,
      wait: 2,
    };
    const began = performance.now();
    let took = "";
    this.#counts(video, "");
    const asked = { exemplars: this.exemplars, range: this.range, region: this.region, each: this.each };
    this.asked = asked;
    try {
      const job = await this.followed(await api.count(video, request));
      const seconds = (performance.now() - began) / 1000;
      if (job.state === "done") took = `in ${seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`}`;
      if (video === this.video) await this.onResult(job);
    } catch (error) {
      toast(error.message);
    } finally {
      if (this.asked === asked) this.asked = null;
      this.counting.delete(video);
      if (video === this.video) this.#showRecount(took);
    }
  }

  /** A recount that reads the video again takes a while: says how far it is until it has ended. */
  async followed(job) {
    while (job.state === "queued" || job.state === "running") {
      this.#counts(job.video, job.state === "queued" ? "waiting" : percent(job.progress));
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      job = await api.job(job.id).catch((error) => {
        if (error.status !== 0 && error.status < 500) throw error;
        return job; // the server may be starting again; it takes up what it was counting
      });
    }
    return job;
  }

  #counts(video, text) {
    this.counting.set(video, text);
    if (video === this.video) this.#showRecount();
  }

  /** Of the open video alone: another one's recount goes on unseen. */
  #showRecount(took = "") {
    byId("recount").disabled = this.counting.has(this.video);
    byId("recount-time").textContent = this.counting.get(this.video) ?? took;
    this.onCounting(this.counting.get(this.video) ?? null);
  }

  showHistory(jobs, current) {
    const done = jobs.filter((job) => job.state === "done");
    byId("history-box").hidden = done.length < 2;
    byId("history").replaceChildren(
      ...done.slice(0, 12).map((job) =>
        element("li", {}, element(
          "button",
          { "aria-pressed": String(job.id === current), onclick: () => this.onShow(job.id), title: `${job.count} ${repetitions(job.count)}` },
          `${job.count} · ${asked(job)}`,
        )),
      ),
    );
  }
}

function chip(text, remove) {
  return element("li", { class: "exemplar-chip" }, text, element("button", { "aria-label": `Remove ${text.toLowerCase()}`, onclick: remove }, "×"));
}

/** The model and what it was asked for. */
function asked({ model, exemplars, unit, start, end, region, each }) {
  const examples = exemplars.length === 1 ? "1 example" : exemplars.length ? `${exemplars.length} examples` : "no example";
  return [model, examples, unit && UNITS[unit], start !== null && span(start, end ?? 0), region && "box", each && "each place"].filter(Boolean).join(", ");
}
