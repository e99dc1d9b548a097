// The timeline: density curve, repetitions, exemplars and the counted range, all in seconds.
//
// It owns no data: it draws what it is given and says what the person did, through the callbacks
// onSeek(time), onJump(index), onExemplar(start, end), onExemplarMoved(index, start, end), onRange(start, end),
// onSpans(spans, chosen) and onChoose(index).

import { curvePath, ticks } from "./curve.js";
import { clock, element, span } from "./format.js";

const SHORTEST = 0.08;
const DRAG_PIXELS = 4;
const NUDGE = 0.05;

export class Timeline {
  constructor(root, callbacks) {
    this.callbacks = callbacks;
    this.duration = 1;
    this.spans = [];
    this.exemplars = [];
    this.range = [0, 1];
    this.mode = "example";
    this.zoom = 1;
    this.time = 0;
    this.chosen = -1;
    this.scroller = root;
    this.#build(root);
    new ResizeObserver(() => this.#drawRuler()).observe(root);
  }

  #build(root) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "tl-curve");
    svg.setAttribute("viewBox", "0 0 1000 100");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    this.curve = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
    this.repsLayer = element("div", { role: "group", "aria-label": "Repetitions" });
    this.exemplarLayer = element("div", { role: "group", "aria-label": "Examples" });
    this.before = element("div", { class: "tl-outside before" });
    this.after = element("div", { class: "tl-outside after" });
    this.track = element("div", { class: "tl-track" }, this.repsLayer, svg, this.before, this.after, this.exemplarLayer);
    this.ruler = element("div", { class: "tl-ruler", "aria-hidden": "true" });
    this.handles = [this.#handle(0, "Count from"), this.#handle(1, "Count to")];
    this.handles[1].classList.add("end");
    this.playhead = element("div", { class: "tl-playhead", "aria-hidden": "true" });
    this.inner = element("div", { class: "tl" }, this.ruler, ...this.handles, this.track, this.playhead);
    this.track.addEventListener("pointerdown", (event) => this.#press(event));
    root.replaceChildren(this.inner);
  }

  // what others call

  setDensity(density, duration) {
    this.duration = Math.max(duration, 0.1);
    this.curve.setAttribute("d", density ? curvePath(density, this.duration) : "");
    this.inner.classList.toggle("rate", density?.kind === "rate");
    this.#drawRuler();
    this.setTime(this.time);
  }

  setSpans(spans, chosen = -1) {
    this.spans = spans;
    this.chosen = chosen;
    this.#drawSpans();
  }

  setExemplars(exemplars) {
    this.exemplars = exemplars;
    this.exemplarLayer.replaceChildren(
      ...exemplars.map((item, index) => this.#region("exemplar", index, item.start, item.end, "Example")),
    );
  }

  setRange(start, end) {
    this.range = [start, end];
    this.before.style.width = this.#percent(start);
    this.after.style.width = this.#percent(this.duration - end);
    [start, end].forEach((time, side) => {
      const handle = this.handles[side];
      handle.style.left = this.#percent(time);
      handle.classList.toggle("at-edge", side ? time >= this.duration - 0.01 : time <= 0.01);
      handle.setAttribute("aria-valuemax", this.duration.toFixed(1));
      handle.setAttribute("aria-valuenow", time.toFixed(1));
      handle.setAttribute("aria-valuetext", `${time.toFixed(1)} seconds`);
    });
  }

  setMode(mode) {
    this.mode = mode;
    this.inner.classList.toggle("correcting", mode === "correct");
    if (mode !== "correct") this.choose(-1);
  }

  setZoom(zoom) {
    this.zoom = Math.min(Math.max(zoom, 1), 64);
    this.inner.style.width = `${this.zoom * 100}%`;
    this.#drawRuler();
    this.#show(this.time, true);
  }

  setTime(time) {
    this.time = time;
    this.playhead.style.left = this.#percent(Math.min(time, this.duration));
    this.#markTime();
    this.#show(time, false);
  }

  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    [...this.repsLayer.children].forEach((node, i) => node.classList.toggle("chosen", i === index));
    this.callbacks.onChoose(index);
  }

  // drawing

  #percent(seconds) {
    return `${Math.min(Math.max(seconds / this.duration, 0), 1) * 100}%`;
  }

  #drawRuler() {
    const { marks, digits } = ticks(this.duration, this.inner.clientWidth || 600);
    this.ruler.replaceChildren(
      ...marks.map((time) => {
        const tick = element("span", { class: "tl-tick" }, clock(time, digits));
        tick.style.left = this.#percent(time);
        return tick;
      }),
    );
    this.#labelSpans();
  }

  #drawSpans() {
    const focused = [...this.repsLayer.children].indexOf(document.activeElement);
    this.repsLayer.replaceChildren(
      ...this.spans.map((item, index) => this.#region("rep", index, item.start, item.end, String(index + 1))),
    );
    if (focused >= 0) this.repsLayer.children[this.chosen >= 0 ? this.chosen : focused]?.focus();
    this.#labelSpans();
    this.#markTime();
  }

  #labelSpans() {
    const scale = (this.inner.clientWidth || 600) / this.duration;
    [...this.repsLayer.children].forEach((node, index) => {
      const { start, end } = this.spans[index];
      node.firstChild.textContent = (end - start) * scale > 14 ? String(index + 1) : "";
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
    if (kind === "rep") node.append(pulse());
    node.dataset.kind = kind;
    node.dataset.index = index;
    node.classList.toggle("chosen", kind === "rep" && index === this.chosen);
    node.addEventListener("keydown", (event) => this.#key(event, kind, index));
    this.#place(node, start, end);
    return node;
  }

  #place(node, start, end) {
    node.style.left = this.#percent(start);
    node.style.width = this.#percent(end - start);
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

  // pointer

  #timeAt(event) {
    const box = this.track.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * this.duration;
  }

  #press(event) {
    if (event.button !== 0) return;
    const region = event.target.closest(".region");
    const grip = event.target.closest(".grip");
    const movable = region && (region.dataset.kind === "exemplar" || this.mode === "correct");
    const from = this.#timeAt(event);
    if (movable) this.#dragRegion(event, region, grip, from);
    else this.#dragNew(event, region, from);
  }

  #track(event, onMove, onEnd) {
    const startX = event.clientX;
    let dragged = false;
    event.preventDefault();
    event.target.closest("button")?.focus();
    const move = (next) => {
      dragged ||= Math.abs(next.clientX - startX) > DRAG_PIXELS;
      if (dragged) onMove(this.#timeAt(next));
    };
    const stop = (next) => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", stop);
      window.removeEventListener("pointercancel", stop);
      onEnd(dragged, this.#timeAt(next));
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", stop);
    window.addEventListener("pointercancel", stop);
  }

  #dragNew(event, region, from) {
    const drawing = element("div", { class: `region drawing ${this.mode === "correct" ? "rep" : "exemplar"}` });
    this.#track(
      event,
      (to) => {
        if (!drawing.isConnected) this.track.append(drawing);
        this.#place(drawing, Math.min(from, to), Math.max(from, to));
      },
      (dragged, to) => {
        drawing.remove();
        const [start, end] = [Math.min(from, to), Math.max(from, to)];
        if (!dragged && region) this.callbacks.onJump(Number(region.dataset.index));
        else if (!dragged) this.callbacks.onSeek(to);
        else if (end - start < SHORTEST) return;
        else if (this.mode === "correct") this.#commit([...this.spans, { start, end }], { start, end });
        else this.callbacks.onExemplar(start, end);
      },
    );
  }

  #dragRegion(event, node, grip, from) {
    const index = Number(node.dataset.index);
    const { kind } = node.dataset;
    const original = kind === "rep" ? this.spans[index] : this.exemplars[index];
    let moved = original;
    if (kind === "rep") this.choose(index);
    this.#track(
      event,
      (to) => {
        const side = grip?.classList.contains("left") ? "start" : grip ? "end" : "both";
        moved = this.#shifted(original, side, to - from);
        this.#place(node, moved.start, moved.end);
      },
      (dragged) => {
        if (!dragged && kind === "rep") this.callbacks.onJump(index);
        else if (dragged) this.#moved(kind, index, moved);
      },
    );
  }

  #shifted({ start, end }, side, by) {
    if (side === "start") return { start: Math.min(Math.max(start + by, 0), end - SHORTEST), end };
    if (side === "end") return { start, end: Math.max(Math.min(end + by, this.duration), start + SHORTEST) };
    const shift = Math.min(Math.max(by, -start), this.duration - end);
    return { start: start + shift, end: end + shift };
  }

  #moved(kind, index, moved) {
    if (kind === "exemplar") this.callbacks.onExemplarMoved(index, moved.start, moved.end);
    else this.#commit(this.spans.map((item, i) => (i === index ? { ...item, ...moved } : item)), moved);
  }

  #commit(spans, changed) {
    const sorted = [...spans].sort((a, b) => a.start - b.start || a.end - b.end);
    const chosen = changed ? sorted.findIndex((s) => s.start === changed.start && s.end === changed.end) : -1;
    this.callbacks.onSpans(sorted, chosen);
  }

  // keyboard

  #key(event, kind, index) {
    if (event.key === "Enter" && kind === "rep") {
      event.preventDefault();
      this.choose(this.mode === "correct" ? index : -1);
      this.callbacks.onJump(index);
      return;
    }
    if (kind === "rep" && this.mode !== "correct") return;
    if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      event.stopPropagation();
      if (kind === "exemplar") this.callbacks.onExemplarMoved(index, null, null);
      else this.deleteSpan(index);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      event.stopPropagation();
      const side = event.altKey ? "start" : event.shiftKey ? "end" : "both";
      const item = kind === "rep" ? this.spans[index] : this.exemplars[index];
      if (kind === "rep") this.chosen = index;
      this.#moved(kind, index, this.#shifted(item, side, event.key === "ArrowLeft" ? -NUDGE : NUDGE));
    }
  }

  deleteSpan(index) {
    this.#commit(this.spans.filter((_, i) => i !== index), null);
  }

  addSpan(start, end) {
    this.#commit([...this.spans, { start, end }], { start, end });
  }

  #handle(side, label) {
    const handle = element("button", {
      class: "tl-handle", type: "button", role: "slider", "aria-label": label, title: label, "aria-valuemin": "0",
    });
    const set = (time) => {
      const range = [...this.range];
      range[side] = side ? Math.max(time, range[0] + SHORTEST) : Math.min(time, range[1] - SHORTEST);
      range[side] = Math.min(Math.max(range[side], 0), this.duration);
      this.callbacks.onRange(...range);
    };
    handle.addEventListener("pointerdown", (event) => this.#track(event, set, () => {}));
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.1, ArrowRight: 0.1, PageDown: -1, PageUp: 1 }[event.key];
      const edge = { Home: 0, End: this.duration }[event.key];
      if (step === undefined && edge === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      set(edge ?? this.range[side] + step);
    });
    return handle;
  }
}

/** One soft bump as wide as its region: with a rate map, whose curve is flat, it shows one repetition as one wave. */
function pulse() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "pulse");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.appendChild(document.createElementNS(svg.namespaceURI, "path")).setAttribute("d", "M0 100C32 100 30 8 50 8S68 100 100 100Z");
  return svg;
}
