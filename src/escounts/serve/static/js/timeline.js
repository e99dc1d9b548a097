// The timeline: ruler, density curve, repetitions, exemplars, the counted range and small pictures, in seconds.
//
// It owns no data: it draws what it is given. What the person does comes from gestures.js and arrow keys through
// the callbacks onScrub(time), onScrubEnd(), onExemplar(start, end), onExemplarMoved(index, start, end),
// onRange(start, end), onSpans(spans, chosen), onLeftOut(span) and onChoose({ kind, index } or null).

import { curvePath, scaleText, ticks, wavePath } from "./curve.js";
import { Filmstrip } from "./filmstrip.js";
import { clock, drawn, element, span } from "./format.js";
import { SHORTEST, setUpGestures } from "./gestures.js";
import { alignedSpans } from "./phase.js";

const NUDGE = 0.05;
const SNAP_PIXELS = 8;

export class Timeline {
  constructor(root, callbacks) {
    this.callbacks = callbacks;
    this.duration = 1;
    this.known = false;
    this.spans = [];
    this.exemplars = [];
    this.leftOut = [];
    this.tracks = []; // places of the picture whose repetitions run side by side, each in a lane of its own
    this.range = [0, 1];
    this.mode = "watch";
    this.together = true;
    this.zoom = 1;
    this.time = 0;
    this.chosen = null;
    this.scroller = root;
    this.film = new Filmstrip();
    this.#build(root);
    setUpGestures(this);
    new ResizeObserver(() => this.#fit()).observe(root);
  }

  #build(root) {
    this.curve = drawn("path");
    this.wave = drawn("path", { class: "tl-wave" });
    const svg = drawn("svg", { class: "tl-curve", viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" }, this.curve, this.wave);
    this.scale = element("span", { class: "tl-scale", "aria-hidden": "true" });
    this.repsLayer = element("div", { role: "group", "aria-label": "Repetitions" });
    this.exemplarLayer = element("div", { role: "group", "aria-label": "Examples" });
    this.othersLayer = element("div", { role: "group", "aria-label": "Sets, and what was not counted" });
    this.before = element("div", { class: "tl-outside before" });
    this.after = element("div", { class: "tl-outside after" });
    this.track = element("div", { class: "tl-track" }, this.repsLayer, this.othersLayer, svg, this.scale, this.before, this.after, this.exemplarLayer);
    this.ruler = element("div", { class: "tl-ruler", "aria-hidden": "true" });
    this.handles = ["Count from", "Count to"].map((label, side) => this.#slider(`tl-handle${side ? " end" : ""}`, label, (step, edge) => {
      this.moveRange(side, edge ?? this.range[side] + step);
    }));
    this.playhead = this.#slider("tl-playhead", "Position", (step, edge) => this.callbacks.onScrub(this.clamp(edge ?? this.time + step)));
    this.inner = element("div", { class: "tl" }, this.ruler, ...this.handles, this.track, this.film.node, this.playhead);
    root.replaceChildren(this.inner);
  }

  #slider(name, label, onKey) {
    const node = element("button", { class: name, type: "button", role: "slider", "aria-label": label, title: label, "aria-valuemin": "0" });
    node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.1, ArrowRight: 0.1, PageDown: -1, PageUp: 1 }[event.key];
      const edge = { Home: 0, End: this.duration }[event.key];
      if (step === undefined && edge === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      onKey(step, edge);
    });
    return node;
  }

  // what others call

  /** density: null until there is one. duration: null until it is known: then there is nothing to move through. */
  setDensity(density, duration) {
    this.known = duration !== null;
    this.duration = Math.max(duration ?? 1, 0.1);
    this.inner.classList.toggle("uncounted", !density);
    this.inner.classList.toggle("unknown", !this.known);
    this.curve.setAttribute("d", density ? curvePath(density, this.duration) : "");
    this.scale.textContent = density ? scaleText(density) : "";
    this.density = density;
    if (!density) this.setOthers([], []);
    this.#fit();
    this.setTime(this.time);
  }

  setSpans(spans, chosen = -1) {
    this.spans = spans;
    this.#drawSpans(chosen);
    this.choose(chosen < 0 ? null : { kind: "rep", index: chosen });
  }

  /** Spans while they are being dragged: only their places change. */
  place(spans) {
    spans.forEach((item, index) => this.placeRegion(this.repsLayer.children[index], item.start, item.end));
    this.#drawWave(spans);
  }

  /** A line over each of several sets, and the repetitions of other motions, in grey. */
  setOthers(sets, leftOut) {
    this.leftOut = leftOut;
    const motions = [...new Set(sets.map(({ motion }) => motion))];
    const lines = sets.length < 2 ? [] : sets.map((set) => {
      const node = element("div", { class: `tl-set motion-${motions.indexOf(set.motion) % 4}` });
      this.placeRegion(node, set.start, set.end);
      return node;
    });
    const others = leftOut.map((item) => {
      const title = `Not counted, ${span(item.start, item.end)}: count these too`;
      const node = element("button", { class: "tl-left-out", type: "button", title, "aria-label": title, onclick: () => this.callbacks.onLeftOut(item) });
      node.addEventListener("pointerdown", (event) => event.stopPropagation());
      this.placeRegion(node, item.start, item.end);
      return node;
    });
    this.othersLayer.replaceChildren(...lines, ...others);
  }

  setExemplars(exemplars) {
    this.exemplars = exemplars;
    this.exemplarLayer.replaceChildren(
      ...exemplars.map((item, index) => this.#region("exemplar", index, item.start, item.end, "Example")),
    );
    this.#labelSpans();
    if (this.chosen?.kind === "exemplar") this.choose(null);
  }

  setRange(start, end) {
    this.range = [start, end];
    this.before.style.width = this.percent(start);
    this.after.style.width = this.percent(this.duration - end);
    [start, end].forEach((time, side) => {
      this.handles[side].classList.toggle("at-edge", side ? time >= this.duration - 0.01 : time <= 0.01);
      this.#setSlider(this.handles[side], time);
    });
  }

  moveRange(side, time) {
    const range = [...this.range];
    range[side] = side ? Math.max(time, range[0] + SHORTEST) : Math.min(time, range[1] - SHORTEST);
    range[side] = this.clamp(range[side]);
    this.callbacks.onRange(...range);
  }

  setMode(mode) {
    this.mode = mode;
    this.inner.dataset.mode = mode;
    this.choose(null);
  }

  setZoom(zoom) {
    this.zoom = Math.min(Math.max(zoom, 1), 64);
    this.inner.style.width = `${this.zoom * 100}%`;
    this.#fit();
    this.#show(this.time, true);
  }

  setTime(time) {
    this.time = time;
    this.#setSlider(this.playhead, Math.min(time, this.duration));
    this.#markTime();
    this.#show(time, false);
  }

  /** { kind: "rep" or "exemplar", index }, or null: the one that loops and that Delete means. */
  choose(chosen) {
    const before = this.chosen;
    this.chosen = chosen;
    for (const [kind, layer] of [["rep", this.repsLayer], ["exemplar", this.exemplarLayer]]) {
      [...layer.children].forEach((node, i) => node.classList.toggle("chosen", chosen?.kind === kind && chosen.index === i));
    }
    if (chosen || before) this.callbacks.onChoose(chosen);
  }

  itemOf({ kind, index }) {
    return kind === "rep" ? this.spans[index] : this.exemplars[index];
  }

  deleteSpan(index) {
    this.commit(this.spans.filter((_, i) => i !== index), null);
  }

  /** A repetition in the empty place around the time `at`, cut where others begin and end; false where there is none.
   *  A hand's breadth from a neighbour it touches it: one ends where the next begins. */
  addSpan(start, end, at = start) {
    const [low, high] = this.emptyAround(at);
    const near = (SNAP_PIXELS / (this.inner.clientWidth || 600)) * this.duration;
    const added = { start: start < low + near ? low : start, end: end > high - near ? high : end };
    if (added.end - added.start < SHORTEST) return false;
    this.commit([...this.spans, added], added);
    return true;
  }

  /** One begins now, while the video plays on: the one before ends here if it ended less than a repetition ago. */
  beginSpan(time, length) {
    const [low, high] = this.emptyAround(time);
    const spans = this.spans.map((item) => (item.end === low && time - low < length ? { ...item, end: time } : item));
    if (high - time >= SHORTEST) this.commit([...spans, { start: time, end: Math.min(time + length, high) }], null);
  }

  /** From the repetition before a time to the one after it. */
  emptyAround(at) {
    const ends = this.spans.filter((item) => item.start <= at).map((item) => item.end);
    const starts = this.spans.filter((item) => item.start > at).map((item) => item.start);
    return [Math.max(0, ...ends), Math.min(this.duration, ...starts)];
  }

  /** The repetition that can be split at a time, or undefined. */
  splittable(time) {
    return this.spans.find(({ start, end }) => time - start >= SHORTEST && end - time >= SHORTEST);
  }

  splitSpan(item, time, choose = true) {
    const second = { start: time, end: item.end };
    const halves = [{ start: item.start, end: time }, second];
    this.commit([...this.spans.filter((other) => other !== item), ...halves], choose ? second : null);
  }

  commit(spans, changed) {
    const sorted = [...spans].sort((a, b) => a.start - b.start || a.end - b.end);
    const chosen = changed ? sorted.findIndex((s) => s.start === changed.start && s.end === changed.end) : -1;
    this.callbacks.onSpans(sorted, chosen);
  }

  /** What a drag or an arrow key makes of an item. side: "start", "end" or "both"; alone: not the other borders. */
  movedItem({ start, end }, side, by, low = 0, high = this.duration) {
    if (side === "start") return { start: Math.min(Math.max(start + by, low), end - SHORTEST), end };
    if (side === "end") return { start, end: Math.max(Math.min(end + by, high), start + SHORTEST) };
    const shift = Math.min(Math.max(by, low - start), high - end);
    return { start: start + shift, end: end + shift };
  }

  /** All spans after one of them was moved: with its border, all borders; one that is moved alone has its neighbours
   *  give way, since labels that overlap mean nothing. */
  movedSpans(index, side, by, alone) {
    const item = this.spans[index];
    if (side !== "both" && this.together && !alone) return alignedSpans(this.spans, item[side], this.clamp(item[side] + by));
    const [before, after] = [this.spans[index - 1], this.spans[index + 1]];
    const low = before ? Math.min(before.start + SHORTEST, item.start) : 0;
    const high = after ? Math.max(after.end - SHORTEST, item.end) : this.duration;
    const moved = { ...item, ...this.movedItem(item, side, by, low, high) };
    return this.spans.map((other, i) => {
      if (i === index) return moved;
      if (i < index) return { ...other, end: Math.min(other.end, moved.start) };
      return { ...other, start: Math.max(other.start, moved.end) };
    });
  }

  clamp(time) {
    return Math.min(Math.max(time, 0), this.duration);
  }

  percent(seconds) {
    return `${(this.clamp(seconds) / this.duration) * 100}%`;
  }

  placeRegion(node, start, end) {
    node.style.left = this.percent(start);
    node.style.width = this.percent(end - start);
  }

  // drawing

  #setSlider(node, time) {
    node.style.left = this.percent(time);
    node.setAttribute("aria-valuemax", this.duration.toFixed(1));
    node.setAttribute("aria-valuenow", time.toFixed(1));
    node.setAttribute("aria-valuetext", `${time.toFixed(1)} seconds`);
  }

  #fit() {
    const { marks, digits } = this.known ? ticks(this.duration, this.inner.clientWidth || 600) : { marks: [] };
    this.ruler.replaceChildren(
      ...marks.map((time) => {
        const tick = element("span", { class: "tl-tick" }, clock(time, digits));
        tick.style.left = this.percent(time);
        return tick;
      }),
    );
    this.film.draw(this.inner.clientWidth);
    this.#labelSpans();
  }

  #drawSpans(chosen) {
    const focused = [...this.repsLayer.children].indexOf(document.activeElement);
    this.repsLayer.replaceChildren(
      ...this.spans.map((item, index) => this.#region("rep", index, item.start, item.end, String(index + 1))),
    );
    this.#drawWave(this.spans);
    if (focused >= 0) this.repsLayer.children[chosen >= 0 ? chosen : focused]?.focus();
    this.#labelSpans();
    this.#markTime();
  }

  /** Under a rate, which is flat, the repetitions that it stands for. */
  #drawWave(spans) {
    this.wave.setAttribute("d", this.density?.kind === "rate" && this.tracks.length < 2 ? wavePath(spans, this.density, this.duration) : "");
  }

  #labelSpans() {
    const scale = (this.inner.clientWidth || 600) / this.duration;
    [...this.repsLayer.children].forEach((node, index) => {
      const { start, end } = this.spans[index];
      const width = (end - start) * scale;
      const text = node.dataset.number ?? String(index + 1);
      node.firstChild.textContent = width > 6 + 8 * text.length ? text : "";
      node.classList.toggle("narrow", width < 16);
    });
    [...this.exemplarLayer.children].forEach((node, index) => {
      const { start, end } = this.exemplars[index];
      node.firstChild.hidden = (end - start) * scale < 58;
      node.classList.toggle("narrow", (end - start) * scale < 16);
    });
  }

  #region(kind, index, start, end, text) {
    const name = kind === "rep" ? `Repetition ${index + 1} of ${this.spans.length}` : "Example";
    const node = element(
      "button",
      { class: `region ${kind}`, type: "button", "aria-label": `${name}, ${span(start, end)}`, title: span(start, end) },
      element("span", { class: "region-label" }, text),
      element("span", { class: "grip left" }),
      element("span", { class: "grip right" }),
    );
    node.dataset.kind = kind;
    node.dataset.index = index;
    node.addEventListener("keydown", (event) => this.#key(event, kind, index));
    this.placeRegion(node, start, end);
    if (kind === "rep" && this.tracks.length > 1) this.#putInLane(node, start, end);
    return node;
  }

  #putInLane(node, start, end) {
    const places = this.tracks.map(({ repetitions }) => repetitions.findIndex((one) => one.start === start && one.end === end));
    const lane = places.findIndex((index) => index >= 0);
    if (lane < 0) return; // a person's own
    node.dataset.number = places[lane] + 1;
    Object.assign(node.style, { top: `${(100 * lane) / this.tracks.length}%`, bottom: "auto", height: `${100 / this.tracks.length}%` });
    node.classList.add("in-lane");
  }

  #markTime() {
    [...this.repsLayer.children].forEach((node, index) => {
      const { start, end } = this.spans[index] ?? { start: 0, end: 0 };
      node.classList.toggle("past", end <= this.time + 1e-3);
      node.classList.toggle("now", start <= this.time && this.time < end);
    });
  }

  #show(time, centre) {
    if (this.zoom === 1) return;
    const x = (time / this.duration) * this.inner.clientWidth;
    const { scrollLeft, clientWidth } = this.scroller;
    if (centre || x < scrollLeft || x > scrollLeft + clientWidth) this.scroller.scrollLeft = x - clientWidth / 3;
  }

  #key(event, kind, index) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.choose({ kind, index });
      return;
    }
    if (kind === "rep" && this.mode !== "correct") return;
    const step = { ArrowLeft: -NUDGE, ArrowRight: NUDGE }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      event.stopPropagation();
      if (kind === "exemplar") this.callbacks.onExemplarMoved(index, null, null);
      else this.deleteSpan(index);
    } else if (step !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      this.#nudge(kind, index, event.altKey ? "start" : event.shiftKey ? "end" : "both", step);
    }
  }

  #nudge(kind, index, side, step) {
    if (kind === "exemplar") {
      const moved = this.movedItem(this.exemplars[index], side, step);
      this.callbacks.onExemplarMoved(index, moved.start, moved.end);
      this.exemplarLayer.children[index]?.focus();
      return;
    }
    const spans = this.movedSpans(index, side, step, false);
    this.commit(spans, spans[index]);
    this.callbacks.onScrub(side === "end" ? spans[index].end : spans[index].start);
    this.callbacks.onScrubEnd();
  }
}
