// What was found: the count and how sure, or what is under way, or why there is nothing.

import { api } from "./api.js";
import { byId, clock, confident, day, element, left, percent, repetitions, toast, UNITS } from "./format.js";

const BEGINS = { arbitrary: "at any point of the motion", exemplar: "as in your example", corrected: "where you put it" };

/** The workspace is in one of these at a time: "counting", "failed", "done". */
function setState(state) {
  byId("workspace").dataset.state = state;
  for (const [id, wanted] of [["verdict-busy", "counting"], ["verdict-failed", "failed"], ["verdict-done", "done"]]) {
    byId(id).hidden = state !== wanted;
  }
  for (const id of ["panels", "modes", "recount"]) byId(id).hidden = state !== "done";
  for (const id of ["screen", "timeline-card"]) byId(id).hidden = state === "failed";
}

export function showNothing() {
  setState("counting");
  byId("verdict-busy").hidden = true;
}

export function showBusy(job) {
  setState("counting");
  byId("busy-progress").value = job.progress;
  byId("busy-text").textContent =
    job.state === "queued" ? "Waiting for its turn" : `Counting: ${percent(job.progress)} ${left(job.remaining_s)}`;
  byId("busy-cancel").onclick = () => api.cancel(job.id).catch((error) => toast(error.message));
}

/** The reason, and what can be done about it; nothing else. */
export function showProblem(message) {
  setState("failed");
  byId("verdict-problem").textContent = message;
}

/** A recount is under way: the number that is still there is the old one. text: how far, or null when it ended. */
export function showRecounting(text) {
  const busy = text !== null;
  byId("verdict-done").classList.toggle("stale", busy);
  byId("verdict-done").setAttribute("aria-busy", String(busy));
  byId("workspace").classList.toggle("recounting", busy);
}

export function showDone() {
  setState("done");
}

/** Of the repetitions on screen: the model's, or (corrected) the person's. */
export function showFacts(spans, result, corrected) {
  const [start, end] = result.range;
  const lengths = spans.map((item) => item.end - item.start).sort((a, b) => a - b);
  const part = start > 0.01 || end < result.duration - 0.06;
  const facts = [
    ...(part ? [["Counted", `${clock(start)}–${clock(end)}`]] : []),
    ["One takes", lengths.length ? `${lengths[Math.floor(lengths.length / 2)].toFixed(2)} s` : "–"],
    ["Begins", BEGINS[corrected ? "corrected" : result.phase] ?? BEGINS.arbitrary],
    ...(result.region ? [["Looked at", "a box of the picture"]] : []),
    ["Model", result.model],
  ];
  byId("facts").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** The big number and what stands behind it: the model's word, or the person's. */
export function showTotal(count, result, corrected) {
  byId("total").textContent = count;
  byId("verdict-done").classList.toggle("none", count === 0);
  byId("total-unit").textContent = count === 0 ? "no repetitions" : repetitions(count);
  byId("by-hand").hidden = !corrected;
  byId("by-hand").textContent = `${count === result.count ? "Labelled" : "Corrected"} by you. The model counted ${result.count}.`;
  const known = (result.confidence_kind ?? "probability") === "probability";
  byId("confidence-box").hidden = corrected || !known;
  const cut = result.details?.exemplar_cut;
  byId("unsure").hidden = corrected || !(result.unsure || cut !== undefined);
  const [first = "", ...reasons] = known
    ? (result.reasons ?? []).map((reason) => `${reason[0].toUpperCase()}${reason.slice(1)}. `)
    : ["This model cannot say how sure it is. "];
  const head = [element("b", {}, result.unsure ? "Not sure. " : "Look at it. "), first];
  const rest = [
    ...reasons,
    cut === undefined
      ? advice(result)
      : `Your example lies across a cut of the film at ${clock(cut)}. Mark one repetition on one side of it.`,
  ];
  // Beside a table of sets there is no room for all of it, but on a phone, where the page scrolls.
  const folded = (result.sets ?? []).length > 1 && !matchMedia("(max-width: 700px)").matches;
  byId("unsure").replaceChildren(
    ...(folded ? [element("details", {}, element("summary", {}, ...head), ...rest)] : [...head, ...rest]),
  );
  showConfidence(result);
}

function advice({ count, exemplars, range: [first, last], tracks = [] }) {
  if (tracks.length > 1) return "Look at it, or click a place's number to count it alone.";
  const most = exemplars.some(({ start, end, video }) => !video && end - start > (last - first) / 2);
  if (most) return "Your example is most of what was counted. Mark one repetition only.";
  if (exemplars.some(({ video }) => video)) return "Look at it, or mark one repetition of this video and recount.";
  if (exemplars.length) return "Look at it, and put the borders right by hand.";
  return count === 0
    ? "If something does repeat here, mark one repetition and recount."
    : "Look at it, or mark one repetition and recount.";
}

function showConfidence(result) {
  const gauge = byId("confidence");
  const text = confident(result);
  gauge.setAttribute("aria-valuenow", parseInt(text, 10) / 100);
  gauge.setAttribute("aria-valuetext", text);
  gauge.firstElementChild.style.width = text.replace(" ", "");
  gauge.classList.toggle("low", result.unsure);
  byId("confidence-text").textContent = `${text} sure, give or take one`;
}

/** What counts as one: both sides, or each; where the model gave no unit, its own number between them. counts: by unit,
 * null where several places have their own. chosen: the person's unit, or null. onUnit(unit). */
export function showUnits({ count, unit, without_unit: before }, counts, chosen, onUnit) {
  const plain = before ?? (unit === null ? count : null);
  const choices = ["cycle", "side"].map((wanted) => [counts?.[wanted], wanted, UNITS[wanted]]);
  if (plain !== null) choices.splice(1, 0, [plain, null, "as counted"]);
  const current = plain === null ? unit : chosen;
  byId("units").hidden = count === 0 || !counts;
  byId("units").replaceChildren(
    ...choices.map(([total, wanted, name]) =>
      element(
        "button",
        { class: "unit", "data-unit": wanted ?? "counted", "aria-pressed": String(wanted === current), onclick: () => onUnit(wanted) },
        element("b", {}, String(total)), ` ${name}`,
      )),
  );
}

export function showKept(video) {
  byId("kept").textContent = video.labelled
    ? "Kept until you delete it, because it has labels."
    : video.source === "media" ? "This file belongs to the server; deleting removes only its counts."
    : video.expires ? `Deleted on ${day(video.expires)}, unless you save labels.`
    : "Kept until you delete it.";
}
