// The video element with a steady clock: one callback a drawn frame while it plays.

export class Player {
  /** onTime(seconds) on every frame and seek, onState(playing), onProblem(message or null). */
  constructor(video, { onTime, onState, onProblem }) {
    this.video = video;
    this.onTime = onTime;
    this.onProblem = onProblem;
    this.preview = null;
    this.failed = false;
    this.fallbackTime = 0;
    this.playable = false;
    const tick = () => {
      onTime(this.time);
      if (!video.paused && !video.ended) requestAnimationFrame(tick);
    };
    video.addEventListener("play", () => {
      onState(true);
      requestAnimationFrame(tick);
    });
    for (const name of ["pause", "ended"]) video.addEventListener(name, () => onState(false));
    for (const name of ["seeked", "timeupdate"]) video.addEventListener(name, () => onTime(this.time));
    video.addEventListener("loadedmetadata", () => {
      this.playable = video.videoWidth > 0;
      onProblem(this.playable ? null : "There is no picture in this file that the browser can show.");
    });
    video.addEventListener("error", () => {
      if (!video.getAttribute("src")) return;
      this.playable = false;
      this.failed = true;
      onProblem("This file cannot be shown here. It is counted all the same: the timeline below works.");
      this.#copy();
    });
    video.addEventListener("click", () => this.toggle());
  }

  get time() {
    return this.playable ? this.video.currentTime : this.fallbackTime;
  }

  load(address) {
    this.preview = null;
    this.failed = false;
    this.fallbackTime = 0;
    this.playable = false;
    this.video.src = address;
    this.onTime(0);
  }

  /** Where a copy is that every browser plays; asked for when the file itself has failed, or fails later. */
  offer(preview) {
    if (this.preview !== null) return;
    this.preview = preview;
    this.#copy();
  }

  #copy() {
    if (!this.failed || !this.preview) return;
    this.failed = false;
    this.onProblem("Your browser cannot play this kind of file. Making a copy that it can…");
    this.video.src = this.preview;
    this.preview = "";
  }

  unload() {
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
  }

  seek(seconds) {
    this.fallbackTime = Math.max(seconds, 0);
    if (this.playable) this.video.currentTime = this.fallbackTime;
    this.onTime(this.fallbackTime);
  }

  toggle() {
    if (!this.playable) return;
    if (this.video.paused) this.video.play().catch(() => {});
    else this.video.pause();
  }

  pause() {
    this.video.pause();
  }

  set speed(rate) {
    this.video.playbackRate = rate;
  }
}
