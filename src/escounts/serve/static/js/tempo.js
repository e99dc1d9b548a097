// How long each repetition took, and the sets: bars with an axis, and a table.

import { byId, clock, element, repetitions } from "./format.js";

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 600, 3600]; // seconds between two lines of the axis
const MOST_LINES = 5;
const MOST_BARS = 220;
const MOST_VALUES = 10; // bars wide enough for a number

/** A bar for each repetition, as long as it took: an uneven rhythm is seen at once. */
export function showTempo(spans) {
  const lengths = spans.map((item) => item.end - item.start);
  const longest = Math.max(...lengths, 0.01);
  const step = STEPS.find((candidate) => MOST_LINES * candidate >= longest) ?? longest;
  const lines = Math.max(Math.ceil(longest / step), 1);
  byId("tempo").hidden = lengths.length < 2 || lengths.length > MOST_BARS;
  byId("tempo-axis").replaceChildren(
    ...Array.from({ length: lines + 1 }, (_, i) => element("span", {}, String(Number(((lines - i) * step).toFixed(1))))),
  );
  const bars = byId("tempo-bars");
  bars.style.gap = `${Math.min(3, 60 / lengths.length)}px`;
  bars.style.backgroundSize = `100% ${100 / lines}%`;
  bars.setAttribute("aria-label", `Seconds for each repetition: ${lengths.map((l) => l.toFixed(1)).join(", ")}`);
  bars.replaceChildren(
    ...lengths.map((length, index) => {
      const value = lengths.length <= MOST_VALUES ? length.toFixed(1) : "";
      const bar = element("span", { title: `${index + 1}: ${length.toFixed(2)} s` }, value);
      bar.style.height = `${(length / (lines * step)) * 100}%`;
      return bar;
    }),
  );
}

/** One row for each set of a count with several. onChoose(set): count what is like it. */
export function showSets(sets, onChoose) {
  const most = Math.max(...sets.map(({ count }) => count), 1);
  const motions = new Set(sets.map(({ motion }) => motion)).size > 1;
  byId("sets").hidden = sets.length < 2;
  byId("sets-title").textContent = `${sets.length} sets${motions ? ", several motions" : ""}`;
  byId("sets-rows").replaceChildren(
    ...sets.map((set, index) => {
      const bar = element("i");
      bar.style.width = `${(set.count / most) * 100}%`;
      const title = `Count what is like this set, ${clock(set.start)}–${clock(set.end)}`;
      const name = `${index + 1}${motions ? ` ${set.motion}` : ""}`;
      return element(
        "tr", {},
        element("td", {}, element("button", { class: "link", title, "aria-label": `${name}: ${title}: ${set.count} ${repetitions(set.count)}`, onclick: () => onChoose(set) }, name)),
        element("td", { class: "set-bar" }, bar),
        element("td", {}, element("b", {}, String(set.count))),
        element("td", {}, `${set.tempo.toFixed(1)} s`),
        element("td", {}, set.rest_before === null ? "–" : `${set.rest_before.toFixed(0)} s`),
      );
    }),
  );
}
