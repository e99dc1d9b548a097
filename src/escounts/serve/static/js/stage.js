// The open video: player, timeline, corrections and what is asked for, kept together.

import { api } from "./api.js";
import { Boxes } from "./boxes.js";
import { showDownloads, showWhoseWord } from "./downloads.js";
import { Editor } from "./editor.js";
import { announce, byId, clock, confident, repetitions, span, toast } from "./format.js";
import { Player } from "./player.js";
import { Prompt } from "./prompt.js";
import { showSets, showTempo } from "./tempo.js";
import { Timeline } from "./timeline.js";
import {
  showBusy, showDone, showFacts, showUnits, showKept, showNothing, showProblem, showRecounting, showTotal,
} from "./verdict.js";

const ACTIVE = new Set(["queued", "running"]);
const HINTS = {
  watch: "Drag anywhere to move through the video. Click a repetition to play it in a loop.",
  mark: "Drag over one repetition to mark it as the example, then Recount.",
  correct: "Drag a border or a repetition; drag over an empty place to add one; split the one you are in.",
};

const UNCOUNTED = "The repetitions appear here once they are counted.";
const ofOthers = (spans) =>
  `Grey: ${spans.length} other ${repetitions(spans.length)} between ${clock(spans[0].start)} and ${clock(spans.at(-1).end)}, not counted. Click one to count these too.`;
const MUCH_ROOM = 1.5; // repetitions: less than that is filled by one

export class Stage {
  /** others(): all videos of the library. onLabelled(videoId, labels): labels were saved. onJob(job): it has changed. */
  constructor({ others, onLabelled, onJob }) {
    this.others = others;
    this.onJob = onJob;
    this.video = this.job = this.result = null;
    this.counted = -1;
    this.timeline = new Timeline(byId("timeline"), {
      onScrub: (time) => this.player.scrub(time),
      onScrubEnd: () => this.player.endScrub(),
      onExemplar: (start, end) => this.prompt.addExemplar(start, end),
      onExemplarMoved: (index, start, end) => this.prompt.moveExemplar(index, start, end),
      onRange: (start, end) => this.prompt.setRange(start, end),
      onSpans: (spans, chosen) => this.editor.change(spans, chosen),
      onChoose: (chosen) => this.#chose(chosen),
      onLeftOut: ({ start, end }) => this.#countLike([...this.prompt.exemplars, { start, end, video: null }]),
    });
    this.player = new Player(byId("player"), {
      onTime: (time) => this.#showTime(time),
      onLength: (seconds) => {
        if (this.result) return;
        this.timeline.setDensity(null, seconds);
        this.#showTime(this.player.time);
      },
      onState: (playing) => {
        byId("play").classList.toggle("playing", playing);
        byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
      },
      onProblem: (message) => {
        byId("unplayable").hidden = message === null;
        byId("unplayable").textContent = message ?? "";
      },
    });
    this.editor = new Editor(this.timeline, {
      onChange: () => this.#spansChanged(),
      onSaved: (id, labels) => {
        onLabelled(id, labels);
        if (this.video?.id === id) showKept(this.video);
      },
    });
    this.boxes = new Boxes(byId("player"), {
      onDrawn: (text) => this.prompt.setRegion(text),
      onPlace: (text) => this.prompt.countPlace(text),
    });
    this.prompt = new Prompt(this.timeline, {
      onRegion: (text) => this.boxes.showRegion(text),
      onResult: (job) => this.#recounted(job),
      onShow: async (id) => { if (await this.editor.mayLeave()) await this.show(await api.job(id), { recount: true }); },
      onCounting: showRecounting,
      mayLeave: () => this.editor.mayLeave(),
    });
    this.setMode("watch");
  }

  /** Leaves the video, whatever was not saved. */
  close() {
    this.video = this.job = this.result = null;
    this.editor.open(null, null, [], null);
    this.player.unload();
  }

  async open(video) {
    const again = this.video?.id === video.id;
    this.video = video;
    byId("verdict-name").textContent = video.name;
    byId("verdict-name").title = video.name;
    showKept(video);
    if (!again) this.#clear(video);
    await this.showLatest();
  }

  /** Shows the video's newest count and labels again. */
  async reload() {
    this.job = null;
    await this.showLatest();
  }

  #clear(video) {
    this.job = this.result = null;
    showNothing();
    this.setMode("watch");
    this.timeline.setZoom(1);
    this.timeline.film.load("");
    this.timeline.tracks = [];
    this.timeline.setDensity(null, video.duration ?? null);
    this.editor.open(video.id, null, [], null);
    this.boxes.open(video);
    this.prompt.open(video.id, video.duration ?? 1, { exemplars: [], start: null, end: null });
    this.prompt.showHistory([], null);
    byId("downloads").replaceChildren();
    this.player.load(api.fileAddress(video.id));
  }

  /** The newest job that is done, with a newer one that runs shown as busy. */
  async showLatest() {
    const { video } = this;
    const job = video?.job;
    if (!job) return;
    if (ACTIVE.has(job.state)) {
      if (!this.result) showBusy(job);
      return;
    }
    try {
      const jobs = await api.jobs(video.id);
      const done = jobs.find((candidate) => candidate.state === "done");
      if (this.video !== video) return;
      if (done) await this.show(await api.job(done.id));
      else if (!this.result) showProblem(job.state === "failed" ? job.error : "This count was cancelled.");
    } catch (error) {
      toast(error.message);
    }
  }

  /** recount: its repetitions replace what is on screen, saved labels too. */
  async show(job, { recount = false } = {}) {
    const { video } = this;
    if (!video || job.video !== video.id || !job.result) return;
    const jobs = await api.jobs(video.id);
    const labels = recount || !video.labelled ? null : await api.labels(video.id).catch(() => null);
    if (!video.width) { // it was sent from this page, and nobody had opened it yet
      const { width, height } = await api.video(video.id);
      Object.assign(video, { width, height });
    }
    if (this.video !== video || (!recount && this.job?.id === job.id)) return;
    const { result } = job;
    this.player.offer(api.previewAddress(video.id));
    this.timeline.film.load(api.filmstripAddress(video.id));
    this.job = job;
    this.result = result;
    video.duration = result.duration;
    showDone();
    showKept(video);
    this.#hint();
    this.timeline.tracks = result.tracks ?? [];
    this.timeline.setDensity(result.density, result.duration);
    if (recount) this.editor.recounted(job.id, result.repetitions);
    else this.editor.open(video.id, job.id, result.repetitions, labels);
    this.boxes.open(video);
    this.boxes.showTracks(result.tracks ?? []);
    this.prompt.open(video.id, result.duration, job);
    this.prompt.offer(this.others());
    this.prompt.showHistory(jobs, job.id);
    showUnits(result, job.counts, job.unit, (unit) => this.#chooseUnit(unit));
    showDownloads(job.id);
    const sure = result.unsure ? "not sure" : `${confident(result)} sure`;
    document.title = `${result.count} · ${video.name}`;
    announce(`${result.count} ${repetitions(result.count)}, ${sure}`);
  }

  async #chooseUnit(unit) {
    if (unit === (this.job.unit ?? this.result.unit) || !(await this.editor.mayLeave())) return;
    try {
      const job = await api.chooseUnit(this.job.id, unit);
      this.onJob(job);
      await this.show(job, { recount: true });
    } catch (error) {
      toast(error.message);
    }
  }

  async #recounted(job) {
    if (job.state !== "done") {
      if (job.error) toast(job.error);
    } else if (await this.editor.mayLeave()) {
      await this.show(job, { recount: true });
    } else {
      this.prompt.showHistory(await api.jobs(job.video), this.job?.id);
    }
  }

  #spansChanged() {
    this.counted = -1;
    this.#showTime(this.player.time);
    showTempo(this.editor.spans);
    if (!this.result) return;
    showTotal(this.editor.spans.length, this.result, this.editor.corrected);
    showFacts(this.editor.spans, this.result, this.editor.corrected);
    const { sets = [], left_out: leftOut = [] } = this.editor.corrected ? {} : this.result;
    showSets(sets, (set) => this.#countLike([this.#typical(set)]));
    this.timeline.setOthers(sets, leftOut);
    this.#hint();
    showWhoseWord({ saved: this.editor.saved, dirty: this.editor.dirty, count: this.result.count });
  }

  /** The repetition in the middle of a set, as an exemplar. */
  #typical({ start, end }) {
    const inside = this.result.repetitions.filter((item) => item.start >= start - 1e-3 && item.end <= end + 1e-3);
    const item = inside[Math.floor(inside.length / 2)];
    return { start: item.start, end: item.end, video: null };
  }

  #countLike(exemplars) {
    this.prompt.setExemplars(exemplars);
    this.prompt.recount();
  }

  #showTime(time) {
    this.timeline.setTime(time);
    this.boxes.setTime(time);
    this.#nameAdding();
    byId("clock").textContent = clock(time);
    byId("length").textContent = this.timeline.known ? ` / ${clock(this.timeline.duration)}` : "";
    const { spans } = this.editor;
    const now = spans.filter((item) => item.end <= time + 1e-3).length;
    if (now === this.counted) return;
    byId("tally").hidden = spans.length === 0;
    byId("tally-now").textContent = now;
    byId("tally-all").textContent = `of ${spans.length}`;
    byId("tally").setAttribute("aria-label", `${now} of ${spans.length} repetitions so far`);
    byId("tally").classList.toggle("bump", now > this.counted && this.counted >= 0);
    this.counted = now;
  }

  /** The chosen repetition plays in a loop, from its start. */
  #chose(chosen) {
    const item = chosen && this.timeline.itemOf(chosen);
    byId("delete-span").disabled = chosen?.kind !== "rep";
    this.player.setLoop(item ?? null);
    byId("looping").hidden = !item;
    byId("hint").hidden = Boolean(item);
    byId("use-chosen").hidden = chosen?.kind !== "rep" || this.timeline.mode === "correct";
    if (!item) return;
    const name = chosen.kind === "rep" ? `repetition ${chosen.index + 1}` : "the example";
    byId("looping").textContent = `Looping ${name} ×`;
    byId("looping").setAttribute("aria-label", `Stop looping ${name}, ${span(item.start, item.end)}`);
    // In Correct in its middle, where it can be split; else where it begins, to watch it.
    this.player.seek(this.timeline.mode === "correct" ? (item.start + item.end) / 2 : item.start);
  }

  useChosen() {
    const { chosen } = this.timeline;
    if (chosen?.kind !== "rep") return;
    const { start, end } = this.timeline.itemOf(chosen);
    this.prompt.addExemplar(start, end);
  }

  #hint() {
    const { mode, leftOut } = this.timeline;
    byId("hint").textContent = !this.result ? UNCOUNTED : mode === "watch" && leftOut.length ? ofOthers(leftOut) : HINTS[mode];
  }

  /** Of a video that is not counted there is nothing to mark or correct, and what is made of it would be lost. */
  setMode(wanted) {
    const mode = this.result ? wanted : "watch";
    document.querySelector(`input[name=mode][value=${mode}]`).checked = true;
    this.timeline.setMode(mode);
    this.#hint();
    byId("correcting").hidden = mode !== "correct";
    byId("timeline-card").dataset.mode = mode;
  }

  /** Inside a repetition it is split in two; a small empty place becomes one, in a large one a new one begins. While it
   *  plays it plays on, so that one can mark along. */
  addHere() {
    const { time, playing } = this.player;
    const whole = this.timeline.splittable(time);
    if (whole) {
      this.timeline.splitSpan(whole, time, !playing);
      return;
    }
    const lengths = this.editor.spans.map((item) => item.end - item.start).sort((a, b) => a - b);
    const length = Math.min(lengths[Math.floor(lengths.length / 2)] ?? 1, this.timeline.duration);
    if (playing) {
      this.timeline.beginSpan(time, length);
      return;
    }
    const [low, high] = this.timeline.emptyAround(time);
    const small = high - low < MUCH_ROOM * length;
    const start = small ? low : Math.min(time, high - length);
    if (!this.timeline.addSpan(start, small ? high : start + length, time)) {
      toast("There is no room for another repetition here. Move into one to split it.");
    }
  }

  #nameAdding() {
    byId("add-span").textContent = this.timeline.splittable(this.player.time) ? "Split here" : "Add here";
  }

  /** To the next or previous repetition; a chosen one hands the choice on. */
  jump(direction) {
    const now = this.player.time;
    const starts = this.editor.spans.map((item) => item.start);
    const target = direction > 0 ? starts.findIndex((s) => s > now + 0.02) : starts.findLastIndex((s) => s < now - 0.2);
    if (target < 0) return;
    if (this.timeline.chosen?.kind === "rep") this.timeline.choose({ kind: "rep", index: target });
    else this.player.seek(starts[target]);
  }

  seekBy(seconds) {
    this.player.seek(this.timeline.clamp(this.player.time + seconds));
  }

  markHere() {
    const here = this.editor.spans.find((item) => item.start <= this.player.time && this.player.time < item.end);
    if (here) this.prompt.addExemplar(here.start, here.end);
  }
}
