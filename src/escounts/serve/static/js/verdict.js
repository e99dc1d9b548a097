// What was found: the count, how sure, what is under way, and the downloads.

import { api, download } from "./api.js";
import { byId, clock, element, left, percent, repetitions, toast } from "./format.js";

const FORMATS = [
  ["mp4", "Video", "mp4"],
  ["html", "Report", "html"],
  ["png", "Picture", "png"],
  ["json", "Data", "json"],
  ["csv", "Table", "csv"],
  ["srt", "Subtitles", "srt"],
];

export function showNothing() {
  for (const id of ["verdict-done", "verdict-problem", "verdict-busy"]) byId(id).hidden = true;
}

export function showBusy(job) {
  showNothing();
  byId("verdict-busy").hidden = false;
  byId("busy-progress").value = job.progress;
  byId("busy-text").textContent =
    job.state === "queued" ? "Waiting for its turn" : `Counting: ${percent(job.progress)} ${left(job.remaining_s)}`;
  byId("busy-cancel").onclick = () => api.cancel(job.id).catch((error) => toast(error.message));
}

export function showProblem(message) {
  showNothing();
  byId("verdict-problem").hidden = false;
  byId("verdict-problem").textContent = message;
}

export function showResult(result, count) {
  showNothing();
  byId("verdict-done").hidden = false;
  showTotal(count, result);
  byId("confidence").setAttribute("aria-valuenow", result.confidence.toFixed(2));
  byId("confidence").setAttribute("aria-valuetext", percent(result.confidence));
  byId("confidence").firstElementChild.style.width = percent(result.confidence).replace(" ", "");
  byId("confidence").classList.toggle("low", result.unsure);
  byId("unsure").hidden = !result.unsure;
  byId("confidence-text").textContent = `${percent(result.confidence)} sure that this is within one`;
  const [start, end] = result.range;
  const lengths = result.repetitions.map((item) => item.end - item.start).sort((a, b) => a - b);
  const facts = [
    ["Counted", `${clock(start)}–${clock(end)}`],
    ["One takes", lengths.length ? `${lengths[Math.floor(lengths.length / 2)].toFixed(2)} s` : "–"],
    ["Sum of density", result.raw_count.toFixed(2)],
    ["Model", result.model],
  ];
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

/** A bar a repetition, as long as it took: an uneven rhythm is seen at once. */
export function showTempo(spans) {
  const lengths = spans.map((item) => item.end - item.start);
  const longest = Math.max(...lengths, 0.01);
  byId("tempo").hidden = lengths.length < 2 || lengths.length > 120;
  byId("tempo-bars").setAttribute("aria-label", `Seconds for each repetition: ${lengths.map((l) => l.toFixed(1)).join(", ")}`);
  byId("tempo-bars").replaceChildren(
    ...lengths.map((length, index) => {
      const bar = element("span", { title: `${index + 1}: ${length.toFixed(2)} s` });
      bar.style.height = `${(length / longest) * 100}%`;
      return bar;
    }),
  );
}

/** The big number: what was counted, or what it is after correction. */
export function showTotal(count, result) {
  byId("total").textContent = count;
  const corrected = result && count !== result.count ? `, corrected from ${result.count}` : "";
  byId("total-unit").textContent = `${repetitions(count)}${corrected}`;
}

export function showDownloads(jobId) {
  byId("download-state").textContent = "";
  byId("downloads").replaceChildren(
    ...FORMATS.map(([format, name, note]) => {
      const button = element("button", { class: "button", "data-format": format }, name, element("small", {}, note));
      button.onclick = async () => {
        button.classList.add("busy");
        byId("download-state").textContent = `Making the ${name.toLowerCase()}…`;
        try {
          byId("download-state").textContent = `${await download(api.downloadAddress(jobId, format))} is ready.`;
        } catch (error) {
          byId("download-state").textContent = "";
          toast(error.message);
        } finally {
          button.classList.remove("busy");
        }
      };
      return element("li", {}, button);
    }),
  );
}

export function showKept(video) {
  byId("kept").textContent = video.expires
    ? `Kept until ${new Date(video.expires * 1000).toLocaleDateString([], { day: "numeric", month: "long", year: "numeric" })}, then deleted.`
    : video.source === "media" ? "This file belongs to the server; deleting removes only its counts." : "Kept until you delete it.";
}
