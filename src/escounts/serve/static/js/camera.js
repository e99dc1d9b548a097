// Recording from the webcam: MediaRecorder to a file that is uploaded like any other.

import { byId, clock } from "./format.js";

const KINDS = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];

/** onFile(blob, name) when a recording is stopped. */
export function setUpCamera(onFile) {
  const dialog = byId("camera-dialog");
  const view = byId("camera");
  let stream = null;
  let recorder = null;
  let timer = null;

  function state(recording) {
    byId("camera-start").hidden = recording;
    byId("camera-stop").hidden = !recording;
  }

  async function open() {
    byId("camera-problem").hidden = true;
    byId("camera-clock").textContent = "";
    byId("camera-start").disabled = true;
    state(false);
    dialog.showModal();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, height: { ideal: 480 } } });
      view.srcObject = stream;
      await view.play();
      byId("camera-start").disabled = false;
    } catch (error) {
      byId("camera-problem").hidden = false;
      byId("camera-problem").textContent = navigator.mediaDevices
        ? `The camera could not be opened: ${error.message}`
        : "Browsers allow the camera only on localhost and over https.";
    }
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
      const moment = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }).replace(":", ".");
      const file = new Blob(parts, { type: recorder.mimeType });
      if (recorder.wanted) onFile(file, `Recording ${moment}.${suffix}`);
      recorder = null;
    };
    recorder.start(500);
    timer = setInterval(() => {
      byId("camera-clock").textContent = clock((performance.now() - began) / 1000);
    }, 100);
    state(true);
  }

  function close(wanted) {
    if (recorder?.state === "recording") {
      recorder.wanted = wanted;
      recorder.stop();
    }
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    view.srcObject = null;
    if (dialog.open) dialog.close();
  }

  byId("record").onclick = open;
  byId("camera-start").onclick = start;
  byId("camera-stop").onclick = () => close(true);
  dialog.addEventListener("close", () => close(false));
}
