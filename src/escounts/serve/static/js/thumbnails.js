// Small pictures in the list, asked for when they come into view, a few at a time: the browser has only a handful
// of connections, and a picture that waits for a busy worker must not keep a recount waiting.

import { api } from "./api.js";

const AT_ONCE = 2;

export class Thumbnails {
  /** root: the list that scrolls. */
  constructor(root) {
    this.waiting = new Map();
    this.loading = 0;
    this.loaded = new Set();
    this.observer = new IntersectionObserver((entries) => this.#seen(entries), { root, rootMargin: "120px" });
  }

  /** image: shows the video's picture once it is in view. Calling again is harmless. */
  watch(image, video) {
    if (image.dataset.video === video) return;
    image.dataset.video = video;
    this.observer.observe(image);
  }

  forget(image) {
    this.observer.unobserve(image);
    this.waiting.delete(image);
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.waiting.set(target, target.dataset.video);
      else this.waiting.delete(target);
    }
    this.#next();
  }

  #next() {
    while (this.loading < AT_ONCE && this.waiting.size) {
      const [image, video] = this.waiting.entries().next().value;
      this.waiting.delete(image);
      this.observer.unobserve(image);
      this.loading += 1;
      const done = () => {
        this.loading -= 1;
        this.#next();
      };
      image.addEventListener("load", () => { image.classList.add("there"); done(); }, { once: true });
      image.addEventListener("error", done, { once: true });
      image.src = api.thumbnailAddress(video);
    }
  }
}
