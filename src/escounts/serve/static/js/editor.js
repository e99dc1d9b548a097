// Corrections: what the person changed in the spans, with undo, and saved as labels.

import { api } from "./api.js";
import { announce, byId, repetitions, toast } from "./format.js";

const plain = (spans) => spans.map(({ start, end }) => ({ start, end }));

export class Editor {
  /** timeline: draws the spans. onChange(): the spans have changed. onSaved(): the video has labels now. */
  constructor(timeline, { onChange, onSaved }) {
    this.timeline = timeline;
    this.onChange = onChange;
    this.onSaved = onSaved;
    this.video = null;
    this.counted = [];
    this.spans = [];
    this.past = [];
    this.saved = null;
    this.dirty = false;
    byId("undo").onclick = () => this.undo();
    byId("revert").onclick = () => this.change(this.counted, -1);
    byId("save-labels").onclick = () => this.save();
    byId("delete-span").onclick = () => this.timeline.chosen >= 0 && this.timeline.deleteSpan(this.timeline.chosen);
    byId("import").onchange = (event) => this.#import(event.target);
    byId("action").oninput = () => this.#mark(true);
  }

  /** A result came or a video was opened: start from its repetitions, or from labels saved before. */
  open(video, counted, labels) {
    this.video = video;
    this.counted = plain(counted);
    this.saved = labels;
    this.past = [];
    this.spans = labels ? plain(labels.spans) : this.counted;
    byId("action").value = labels?.action ?? "";
    this.dirty = false;
    this.#show(-1);
  }

  /** A recount: its repetitions replace what was there, and can be undone. */
  recounted(counted) {
    this.counted = plain(counted);
    this.past = [];
    this.spans = this.counted;
    this.dirty = false;
    this.#show(-1);
  }

  change(spans, chosen) {
    this.past.push(this.spans);
    this.spans = plain(spans);
    this.dirty = true;
    this.#show(chosen);
  }

  undo() {
    const before = this.past.pop();
    if (!before) return;
    this.spans = before;
    this.dirty = this.past.length > 0 || this.saved === null;
    this.#show(-1);
  }

  get corrected() {
    return JSON.stringify(this.spans) !== JSON.stringify(this.counted);
  }

  async save() {
    const spans = this.spans.map(({ start, end }) => ({ start: round(start), end: round(end) }));
    try {
      this.saved = await api.saveLabels(this.video, { spans, action: byId("action").value.trim() });
      this.#mark(false);
      this.onSaved();
      announce("Labels saved");
    } catch (error) {
      toast(`The labels were not saved: ${error.message}`);
    }
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
      this.onSaved();
      this.#show(-1);
    } catch (error) {
      toast(error instanceof SyntaxError ? `${file.name} is not JSON.` : `${file.name}: ${error.message}`);
    }
  }

  #show(chosen) {
    this.timeline.setSpans(this.spans, chosen);
    byId("delete-span").disabled = chosen < 0;
    this.#mark(this.dirty);
    this.onChange();
  }

  #mark(dirty) {
    this.dirty = dirty;
    const count = this.spans.length;
    const counted = this.counted.length;
    byId("correct-text").textContent = this.corrected
      ? `${count} ${repetitions(count)} after correction, ${counted} counted.`
      : "Switch to Correct, then drag spans, their edges, or over an empty place to add one.";
    byId("undo").disabled = this.past.length === 0;
    byId("revert").disabled = !this.corrected;
    byId("labels-state").textContent = dirty ? "Not saved" : this.saved ? `Saved: ${this.saved.spans.length}` : "";
    for (const [id, address] of [["labels-csv", api.labelsAddress], ["label-studio", api.labelStudioAddress]]) {
      byId(id).hidden = !this.saved;
      byId(id).href = this.video ? address(this.video) : "";
      byId(id).setAttribute("download", "");
    }
  }
}

const round = (seconds) => Math.round(seconds * 1000) / 1000;
