// A camera counted while it runs: small pictures go to the server a few at a time, the count comes back.

import { api } from "./api.js";

const WIDTH = 256;
const QUALITY = 0.75;
const RATE = 30;
const BETWEEN = 200; // ms from one request to the next
const MOST_WAITING = 60; // frames; more are dropped

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export class LiveCount {
  /** view: a video element that plays the camera. onState(count): what the server knows, whenever it is heard. */
  constructor(view, onState) {
    this.view = view;
    this.onState = onState;
    this.id = null;
    this.running = false;
    this.dropped = 0;
    this.canvas = document.createElement("canvas");
  }

  /** Begins a session and waits until its model is loaded; false where it cannot count live, which onState explains. */
  async prepare() {
    try {
      let count = await api.beginLive();
      if (this.discarded) api.endLive(count.id).catch(() => {});
      this.id = count.id;
      while (count.state === "starting" && !this.discarded) {
        await pause(250);
        count = await api.live(count.id);
      }
      this.onState(count);
      return count.state === "ready";
    } catch (error) {
      this.onState({ state: "failed", error: error.message });
      return false;
    }
  }

  start() {
    this.running = true;
    this.began = null;
    this.time = 0;
    this.waiting = [];
    this.#watch();
    this.#send();
  }

  /** Ends it, without waiting for anything. */
  discard() {
    this.running = false;
    this.discarded = true;
    if (this.id) api.endLive(this.id).catch(() => {});
    this.id = null;
  }

  /** From now on what is like the stretch between two times of the session is counted. */
  async mark(start, end) {
    this.#tell(await api.markLive(this.id, start, end));
  }

  #tell(count) {
    if (!this.discarded) this.onState({ ...count, dropped: count.dropped + this.dropped });
  }

  /** Takes the camera's frames as they come; a browser that does not say when is asked 30 times a second. */
  #watch() {
    if (!this.running) return;
    const next = (now) => { this.#take(now); this.#watch(); };
    if (this.view.requestVideoFrameCallback) this.view.requestVideoFrameCallback(next);
    else setTimeout(() => next(performance.now()), 1000 / RATE);
  }

  #take(now) {
    if (!this.running) return;
    this.began ??= now;
    const time = (now - this.began) / 1000;
    if (time > 0 && time - this.time < 0.8 / RATE) return; // a camera that is faster than needed
    if (this.waiting.length >= MOST_WAITING) {
      this.dropped += 1;
      return;
    }
    this.time = time;
    const { videoWidth, videoHeight } = this.view;
    const { canvas } = this;
    canvas.width = Math.min(WIDTH, videoWidth);
    canvas.height = Math.max(1, Math.round((canvas.width * videoHeight) / videoWidth));
    canvas.getContext("2d", { alpha: false }).drawImage(this.view, 0, 0, canvas.width, canvas.height);
    const picture = new Promise((resolve) => { canvas.toBlob(resolve, "image/jpeg", QUALITY); });
    this.waiting.push({ time, picture });
  }

  async #send() {
    while (this.running) {
      const began = performance.now();
      const frames = this.waiting.splice(0);
      if (frames.length) {
        try {
          const count = await api.sendFrames(this.id, await packed(frames));
          if (count.state === "failed" || count.state === "ended") this.running = false;
          this.#tell(count);
        } catch (error) {
          this.dropped += frames.length;
          if (error.status === 0) await pause(1000); // the server does not answer: it may come back
          else this.#fail(error);
        }
      }
      await pause(Math.max(0, BETWEEN - (performance.now() - began)));
    }
  }

  /** What cannot go on is ended on the server, too: until then it would let nobody here begin another. */
  #fail(error) {
    this.running = false;
    if (this.id) api.endLive(this.id).catch(() => {});
    this.id = null;
    if (!this.discarded) this.onState({ state: "failed", error: error.message });
  }
}

/** Frames as the service reads them: time (float64), number of bytes (uint32), JPEG. */
async function packed(frames) {
  const parts = [];
  for (const { time, picture } of frames) {
    const blob = await picture;
    const head = new DataView(new ArrayBuffer(12));
    head.setFloat64(0, time, true);
    head.setUint32(8, blob.size, true);
    parts.push(head, blob);
  }
  return new Blob(parts);
}
