// What a pointer does on the timeline. The picture follows whatever is dragged; a vertical swipe is left to the
// page, which scrolls.

import { element } from "./format.js";

const DRAG_PIXELS = 4;
export const SHORTEST = 0.08;

export function setUpGestures(timeline) {
  const { callbacks } = timeline;
  const { inner, track, handles, film } = timeline;

  const timeAt = (event) => {
    const box = track.getBoundingClientRect();
    return timeline.clamp(((event.clientX - box.left) / box.width) * timeline.duration);
  };

  inner.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !timeline.known) return;
    const handle = handles.indexOf(event.target.closest(".tl-handle"));
    const region = event.target.closest(".region");
    if (handle >= 0) follow(event, { move: (to) => showing(to, () => timeline.moveRange(handle, to)) });
    else if (region && (region.dataset.kind === "exemplar" || timeline.mode === "correct")) dragRegion(event, region);
    else if (event.target.closest(".tl-track") && timeline.mode !== "watch") dragNew(event, region);
    else scrub(event, region);
  });
  film.node.addEventListener("dragstart", (event) => event.preventDefault());

  function showing(time, change) {
    change();
    callbacks.onScrub(time);
  }

  /** move(time) while it is dragged, end(dragged, time) when it is let go; cancelled: the page scrolls instead. */
  function follow(event, { press = () => {}, move, end = () => {}, cancel = () => {} }) {
    const startX = event.clientX;
    let dragged = false;
    event.target.closest("button")?.focus({ preventScroll: true });
    if (event.pointerType !== "touch") {
      event.preventDefault();
      press(timeAt(event));
    }
    const moved = (next) => {
      if (next.pointerId !== event.pointerId) return;
      dragged ||= Math.abs(next.clientX - startX) > DRAG_PIXELS;
      if (dragged) move(timeAt(next), next);
    };
    const stop = (next) => {
      if (next.pointerId !== event.pointerId) return;
      window.removeEventListener("pointermove", moved);
      window.removeEventListener("pointerup", stop);
      window.removeEventListener("pointercancel", stop);
      inner.classList.remove("dragging");
      if (next.type === "pointercancel") cancel();
      else end(dragged, timeAt(next), next);
      callbacks.onScrubEnd();
    };
    inner.classList.add("dragging");
    window.addEventListener("pointermove", moved);
    window.addEventListener("pointerup", stop);
    window.addEventListener("pointercancel", stop);
  }

  function choose(region) {
    timeline.choose({ kind: region.dataset.kind, index: Number(region.dataset.index) });
  }

  /** Ruler, playhead, pictures and, when nothing is marked or corrected, the whole timeline. */
  function scrub(event, region) {
    follow(event, {
      press: (time) => { if (!region && !event.target.closest(".tl-playhead")) showing(time, () => timeline.choose(null)); },
      move: (to) => showing(to, () => timeline.choose(null)),
      end: (dragged, to) => {
        if (!dragged && region) choose(region);
        else if (!dragged && !event.target.closest(".tl-playhead")) showing(to, () => timeline.choose(null));
      },
    });
  }

  function dragNew(event, region) {
    const kind = timeline.mode === "correct" ? "rep" : "exemplar";
    const drawing = element("div", { class: `region drawing ${kind}` });
    const from = timeAt(event);
    follow(event, {
      move: (to) => {
        if (!drawing.isConnected) track.append(drawing);
        showing(to, () => timeline.placeRegion(drawing, Math.min(from, to), Math.max(from, to)));
      },
      end: (dragged, to) => {
        drawing.remove();
        const [start, end] = [Math.min(from, to), Math.max(from, to)];
        if (!dragged && region) choose(region);
        else if (!dragged) showing(to, () => timeline.choose(null));
        else if (end - start < SHORTEST) return;
        else if (kind === "rep") timeline.addSpan(start, end, from);
        else callbacks.onExemplar(start, end);
      },
      cancel: () => drawing.remove(),
    });
  }

  function dragRegion(event, node) {
    const index = Number(node.dataset.index);
    const { kind } = node.dataset;
    const grip = event.target.closest(".grip");
    const side = grip?.classList.contains("left") ? "start" : grip ? "end" : "both";
    const from = timeAt(event);
    const { spans, exemplars } = timeline;
    let result = kind === "rep" ? spans : exemplars;
    follow(event, {
      move: (to, moving) => {
        if (kind === "rep") {
          result = timeline.movedSpans(index, side, to - from, moving.altKey);
          timeline.place(result);
        } else {
          result = exemplars.map((item, i) => (i === index ? { ...item, ...timeline.movedItem(item, side, to - from) } : item));
          timeline.placeRegion(node, result[index].start, result[index].end);
        }
        const all = kind === "rep" && side !== "both" && timeline.together && !moving.altKey;
        callbacks.onScrub(all ? to : side === "end" ? result[index].end : result[index].start);
      },
      end: (dragged) => {
        if (!dragged) choose(node);
        else if (kind === "rep") timeline.commit(result, result[index]);
        else callbacks.onExemplarMoved(index, result[index].start, result[index].end);
      },
      cancel: () => (kind === "rep" ? timeline.place(spans) : timeline.setExemplars(exemplars)),
    });
  }
}
