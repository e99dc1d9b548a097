// Corrections: what the person changed in the spans, with undo, and saved as labels.

import { api } from "./api.js";
import { ask } from "./dialogs.js";
import { announce, byId, repetitions, rounded, toast } from "./format.js";

const plain = (spans) => spans.map(({ start, end }) => ({ start, end }));
const halves = ({ start, end }) => [{ start, end: (start + end) / 2 }, { start: (start + end) / 2, end }];
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** What either changed of the spans both began with; where they overlap, mine. */
function merged(before, mine, theirs) {
  const among = (spans, { start, end }) => spans.some((one) => Math.abs(one.start - start) < 2e-3 && Math.abs(one.end - end) < 2e-3);
  const kept = mine.filter((one) => among(theirs, one) || !among(before, one));
  const added = theirs.filter((one) => !among(mine, one) && !among(before, one));
  const free = added.filter((one) => kept.every(({ start, end }) => one.end <= start || end <= one.start));
  return [...kept, ...free].sort((a, b) => a.start - b.start);
}

export class Editor {
  /** timeline: draws the spans. onChange(): the spans have changed. onSaved(): the video has labels now. */
  constructor(timeline, { onChange, onSaved }) {
    this.timeline = timeline;
    this.onChange = onChange;
    this.onSaved = onSaved;
    this.video = null;
    this.job = null;
    this.counted = [];
    this.spans = [];
    this.past = [];
    this.future = [];
    this.saved = null;
    this.dirty = false;
    byId("undo").onclick = () => this.undo();
    byId("redo").onclick = () => this.redo();
    byId("halve-all").onclick = () => this.change(this.spans.flatMap(halves), -1);
    byId("revert").onclick = () => this.change(this.counted, -1);
    byId("save-labels").onclick = () => this.save();
    byId("delete-span").onclick = () => this.deleteChosen();
    byId("import").onchange = (event) => this.#import(event.target);
    byId("action").oninput = () => this.#mark(true);
    byId("together").onchange = (event) => { timeline.together = event.target.checked; };
    window.addEventListener("beforeunload", (event) => { if (this.dirty) event.preventDefault(); });
  }

  /** A result came or a video was opened: start from its repetitions, or from labels saved before. */
  open(video, job, counted, labels) {
    this.video = video;
    this.job = job;
    this.counted = plain(counted);
    this.saved = labels;
    this.past = [];
    this.future = [];
    this.spans = labels ? plain(labels.spans) : this.counted;
    byId("action").value = labels?.action ?? "";
    this.dirty = false;
    this.#show(-1);
  }

  /** Another count of the same video: its repetitions replace what was there; saved labels stay saved. */
  recounted(job, counted) {
    this.job = job;
    this.counted = plain(counted);
    this.past = [];
    this.future = [];
    this.spans = this.counted;
    this.dirty = false;
    this.#show(-1);
  }

  change(spans, chosen) {
    this.past.push(this.spans);
    this.future = [];
    this.spans = plain(spans);
    this.dirty = true;
    this.#show(chosen);
  }

  undo() {
    this.#travel(this.past, this.future);
  }

  redo() {
    this.#travel(this.future, this.past);
  }

  #travel(from, to) {
    const spans = from.pop();
    if (!spans) return;
    to.push(this.spans);
    this.spans = spans;
    this.dirty = !same(spans, this.saved ? plain(this.saved.spans) : this.counted);
    this.#show(-1);
  }

  deleteChosen() {
    const { chosen } = this.timeline;
    if (chosen?.kind === "rep") this.timeline.deleteSpan(chosen.index);
  }

  /** What is on screen is a person's word: it differs from the count, or it was saved as it is. */
  get corrected() {
    return !same(this.spans, this.counted) || (this.saved !== null && same(this.spans, plain(this.saved.spans)));
  }

  async save() {
    const spans = this.spans.map(({ start, end }) => ({ start: rounded(start), end: rounded(end) }));
    const { video } = this;
    const labels = { spans, action: byId("action").value.trim(), job: this.job, revision: this.saved?.revision ?? 0 };
    try {
      const saved = await api.saveLabels(video, labels).catch((error) => this.#savedElsewhere(error, video, labels));
      if (!saved) return false;
      this.onSaved(video, saved);
      if (video !== this.video) return true;
      this.saved = saved;
      this.spans = plain(saved.spans);
      this.dirty = false;
      this.#show(-1);
      announce("Labels saved");
      return true;
    } catch (error) {
      toast(`The labels were not saved: ${error.message}`);
      return false;
    }
  }

  /** Another tab or person saved labels since these were opened: both are kept, or these replace them. */
  async #savedElsewhere(error, video, labels) {
    if (error.status !== 409 || video !== this.video) throw error;
    const theirs = await api.labels(video);
    const count = theirs.spans.length;
    const choice = await ask("Labels were saved elsewhere", `Another tab or person saved ${count} ${repetitions(count)} of this video meanwhile.`, [
      ["merge", "Merge both", "primary"], ["overwrite", "Replace them by mine", "danger"], ["", "Keep correcting", ""],
    ]);
    if (!choice) return null;
    const spans = choice === "merge" ? merged(this.saved?.spans ?? this.counted, labels.spans, theirs.spans) : labels.spans;
    return api.saveLabels(video, { ...labels, spans, action: labels.action || theirs.action, revision: theirs.revision });
  }

  /** Whether the corrections may go: nothing is lost, or the person saved them or gave them up. */
  async mayLeave() {
    if (!this.dirty) return true;
    const choice = await ask("Save your corrections?", "The repetitions you corrected are not saved yet.", [
      ["save", "Save labels", "primary"], ["discard", "Discard them", "danger"], ["stay", "Keep correcting", ""],
    ]);
    if (choice === "save") return this.save();
    if (choice === "discard") this.dirty = false;
    return choice === "discard";
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      const labels = await api.importLabelStudio(this.video, JSON.parse(await file.text()));
      this.past.push(this.spans);
      this.saved = labels;
      this.spans = plain(labels.spans);
      byId("action").value = labels.action;
      this.dirty = false;
      this.onSaved(this.video, labels);
      this.#show(-1);
    } catch (error) {
      toast(error instanceof SyntaxError ? `${file.name} is not JSON.` : `${file.name}: ${error.message}`);
    }
  }

  #show(chosen) {
    this.timeline.setSpans(this.spans, chosen);
    byId("delete-span").disabled = chosen < 0;
    this.#mark(this.dirty);
  }

  #mark(dirty) {
    this.dirty = dirty;
    const count = this.spans.length;
    const counted = this.counted.length;
    byId("correct-text").textContent = this.corrected
      ? `${count} ${repetitions(count)} by your hand; the model counted ${counted}.`
      : "Choose Correct above the timeline and put the borders right. Saved labels can be downloaded, and teach the model.";
    byId("undo").disabled = this.past.length === 0;
    byId("redo").disabled = this.future.length === 0;
    byId("halve-all").disabled = count === 0;
    byId("revert").disabled = same(this.spans, this.counted);
    byId("labels-state").textContent = dirty ? "Not saved" : this.saved ? `Saved: ${this.saved.spans.length}` : "";
    for (const [id, address] of [["labels-csv", api.labelsAddress], ["label-studio", api.labelStudioAddress]]) {
      byId(id).hidden = !this.saved;
      byId(id).href = this.video ? address(this.video) : "";
      byId(id).setAttribute("download", "");
    }
    this.onChange();
  }
}
