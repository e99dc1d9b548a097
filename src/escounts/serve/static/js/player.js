// The video element with a steady clock: one callback per drawn frame while it plays; scrubbing and looping.

const LOOP_SLACK = 0.03;

export class Player {
  /** onTime(seconds) on every frame and seek, onLength(seconds), onState(playing), onProblem(message or null). */
  constructor(video, { onTime, onLength, onState, onProblem }) {
    this.video = video;
    this.onTime = onTime;
    this.onProblem = onProblem;
    this.preview = null;
    this.failed = false;
    this.fallbackTime = 0;
    this.playable = false;
    this.loop = null;
    this.next = null; // where to go once the seek under way has arrived
    this.resume = false;
    const tick = () => {
      this.#keepInLoop();
      onTime(this.time);
      if (!video.paused && !video.ended) requestAnimationFrame(tick);
    };
    video.addEventListener("play", () => {
      onState(true);
      requestAnimationFrame(tick);
    });
    video.addEventListener("pause", () => onState(false));
    video.addEventListener("ended", () => {
      if (this.loop) this.#again();
      else onState(false);
    });
    video.addEventListener("seeked", () => this.#arrived());
    video.addEventListener("timeupdate", () => onTime(this.time));
    video.addEventListener("loadedmetadata", () => {
      this.playable = video.videoWidth > 0;
      onProblem(this.playable ? null : "There is no picture in this file that the browser can show.");
      if (this.playable && this.fallbackTime > 0) video.currentTime = this.fallbackTime;
      if (this.playable && Number.isFinite(video.duration)) onLength(video.duration); // a recording may not say
    });
    video.addEventListener("error", () => this.#unplayable());
    video.addEventListener("click", () => this.toggle());
  }

  get time() {
    return this.playable ? this.next ?? this.video.currentTime : this.fallbackTime;
  }

  get playing() {
    return !this.video.paused;
  }

  load(address) {
    this.preview = null;
    this.failed = this.playable = this.resume = false;
    this.fallbackTime = 0;
    this.loop = this.next = null;
    this.video.src = address;
    this.onTime(0);
  }

  /** Where a copy is that every browser plays; asked for when the file itself has failed, or fails later. */
  offer(preview) {
    if (this.preview !== null) return;
    this.preview = preview;
    this.#copy();
  }

  #unplayable() {
    if (!this.video.getAttribute("src")) return;
    this.playable = false;
    this.failed = true;
    this.onProblem("Your browser cannot play this kind of file. A copy that it can is made once it is counted.");
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
    this.loop = this.next = null;
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
  }

  /** Many calls in a row while something is dragged: a picture is asked for when the one before has come. */
  seek(seconds) {
    this.fallbackTime = Math.max(seconds, 0);
    if (this.playable) {
      // A seek is over a moment before its event comes: what waited for that event is older than this.
      this.next = this.video.seeking ? this.fallbackTime : null;
      if (this.next === null) this.video.currentTime = this.fallbackTime;
    }
    this.onTime(this.fallbackTime);
  }

  #arrived() {
    if (this.next !== null) {
      this.video.currentTime = this.next;
      this.next = null;
    }
    this.onTime(this.time);
  }

  /** Shows another moment while something is dragged; playing goes on where the drag ends. */
  scrub(seconds) {
    this.resume ||= !this.video.paused;
    this.video.pause();
    this.seek(seconds);
  }

  endScrub() {
    if (this.resume) this.video.play().catch(() => {});
    this.resume = false;
  }

  /** span { start, end } that playing stays in, or null. */
  setLoop(span) {
    this.loop = span;
  }

  #keepInLoop() {
    if (!this.loop || this.video.paused || this.video.seeking) return;
    const { start, end } = this.loop;
    if (this.time >= end - LOOP_SLACK || this.time < start - LOOP_SLACK) this.video.currentTime = start;
  }

  #again() {
    this.video.currentTime = this.loop.start;
    this.video.play().catch(() => {});
  }

  toggle() {
    if (!this.playable) return;
    if (this.video.paused) this.video.play().catch(() => {});
    else this.video.pause();
  }

  set speed(rate) {
    this.video.playbackRate = rate;
  }
}
