// The camera: counted while it runs, recorded meanwhile, and kept like any other video.

import { curvePath } from "./curve.js";
import { announce, byId, clock, confident, drawn, repetitions } from "./format.js";
import { LiveCount } from "./live.js";
import { sound } from "./sound.js";

const KINDS = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const SHOWN = 30; // seconds of the curve
const LEAST = 0.04; // repetitions in a tenth of a second that reach the top of it
const NOTHING = { count: 0, open: 0, rate: 0, time: 0, repetitions: [], gaps: [], density: { start: 0, step: 0.1, values: [] } };

/** onFile(blob, name) when a recording is to be kept. */
export function setUpCamera(onFile) {
  const dialog = byId("camera-dialog");
  const view = byId("camera");
  let stream = null;
  let recorder = null;
  let live = null;
  let timer = null;
  let marking = null;
  let opening = 0; // which time the dialog was opened or closed; what was begun before is of no use

  function showButtons(recording) {
    byId("camera-start").hidden = recording;
    byId("camera-stop").hidden = !recording;
    byId("live-mark").hidden = !(recording && live?.running);
    byId("live-mark").textContent = marking === null ? "Mark one" : "… it ends here";
  }

  function onState(count) {
    const over = count.state === "failed" || (count.state === "ended" && count.error);
    if (count.state === "counting") showCount(count);
    if (over) marking = null;
    byId("live-note").textContent = over ? `Not counted live: ${count.error.replace(/\.$/, "")}. It is counted when you stop.` : explained(count);
    if (recorder) showButtons(true);
  }

  async function open() {
    byId("camera-problem").hidden = true;
    byId("camera-clock").textContent = "";
    byId("live-view").hidden = byId("live-tally").hidden = true;
    byId("live-note").textContent = "";
    byId("camera-start").disabled = true;
    marking = null;
    showButtons(false);
    dialog.showModal();
    opening += 1;
    const mine = opening;
    try {
      const opened = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, height: { ideal: 480 } } });
      if (mine !== opening) return opened.getTracks().forEach((track) => track.stop());
      stream = opened;
      view.srcObject = stream;
      await view.play();
    } catch (error) {
      if (mine !== opening) return;
      byId("camera-problem").hidden = false;
      byId("camera-problem").textContent = navigator.mediaDevices
        ? `The camera could not be opened: ${error.message}`
        : "Browsers allow the camera only on localhost and over https.";
      return;
    }
    if (mine !== opening) return;
    byId("live-note").textContent = "Getting ready…";
    const session = new LiveCount(view, onState);
    live = session;
    const ready = await session.prepare();
    if (live !== session) return; // closed meanwhile
    if (!ready) live = null;
    byId("camera-start").disabled = false;
  }

  function start() {
    const mimeType = KINDS.find((kind) => MediaRecorder.isTypeSupported(kind));
    const parts = [];
    const began = performance.now();
    recorder = new MediaRecorder(stream, { mimeType });
    recorder.ondataavailable = (event) => parts.push(event.data);
    recorder.onstop = () => {
      clearInterval(timer);
      const suffix = recorder.mimeType.includes("mp4") ? "mp4" : "webm";
      const now = new Date();
      const moment = new Date(now - now.getTimezoneOffset() * 60_000).toISOString().slice(0, 16).replace("T", " ").replace(":", ".");
      const file = new Blob(parts, { type: recorder.mimeType });
      if (recorder.wanted) onFile(file, `Recording ${moment}.${suffix}`);
      recorder = null;
    };
    recorder.start(500);
    timer = setInterval(() => {
      byId("camera-clock").textContent = clock((performance.now() - began) / 1000);
    }, 100);
    if (live) {
      showCount(NOTHING);
      live.start();
    }
    showButtons(true);
  }

  /** Pressed where a repetition begins and again where it ends. */
  function mark() {
    const start = marking;
    marking = start === null ? live.time : null;
    showButtons(true);
    if (start !== null && live.time > start) {
      live.mark(start, live.time).catch((error) => { byId("live-note").textContent = error.message; });
    }
  }

  function explained(count) {
    if (marking !== null) return "Press again where this repetition ends.";
    if (count.problem) return count.problem;
    if (count.dropped) return `${count.dropped} frames dropped: the server is too slow for all of them.`;
    if (count.exemplars?.length) return "It counts what is like the repetition you marked.";
    return `It counts while you move${count.confidence ? `; ${confident(count)} sure so far` : ""}.`;
  }

  function close(wanted) {
    opening += 1;
    if (recorder?.state === "recording") {
      recorder.wanted = wanted;
      recorder.stop();
    }
    live?.discard();
    live = null;
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    view.srcObject = null;
    if (dialog.open) dialog.close();
  }

  byId("record").onclick = open;
  byId("camera-start").onclick = start;
  byId("camera-stop").onclick = () => close(true);
  byId("live-mark").onclick = mark;
  dialog.addEventListener("close", () => close(false));
  window.addEventListener("pagehide", () => live?.discard());
}

function showCount({ count, open, rate, time, repetitions: spans, gaps, density }) {
  byId("live-view").hidden = byId("live-tally").hidden = false;
  const before = byId("live-count").textContent;
  byId("live-count").textContent = count;
  byId("live-rate").textContent = rate > 0.05 ? `${rate.toFixed(1)} per second` : "";
  byId("live-open").value = open;
  if (String(count) !== before) {
    const words = `${count} ${repetitions(count)}`;
    byId("live-tally").setAttribute("aria-label", `${words} so far`);
    if (count) announce(words);
    if (count > Number(before)) sound(count);
  }
  const from = Math.max(0, time - SHOWN);
  const stretch = (kind) => ({ start, end }) =>
    drawn("rect", { class: kind, x: ((start - from) / SHOWN) * 1000, y: 0, width: ((end - start) / SHOWN) * 1000, height: 100 });
  const curve = drawn("path", { d: curvePath({ ...density, start: density.start - from }, SHOWN, LEAST) });
  byId("live-curve").replaceChildren(...spans.map(stretch("repetition")), ...gaps.map(stretch("gap")), curve);
}
