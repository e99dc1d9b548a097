// Small pictures of the video along the timeline: one JPEG of PICTURES pictures side by side, cut by the style.

import { element } from "./format.js";

const PICTURES = 60; // as GET /api/videos/{id}/filmstrip says

export class Filmstrip {
  constructor() {
    this.node = element("div", { class: "tl-film", "aria-hidden": "true" });
    this.image = null;
    this.address = "";
  }

  /** Shows the pictures at an address once they are there; "" shows none. */
  async load(address) {
    if (address === this.address) return;
    this.address = address;
    this.image = null;
    this.draw(0);
    if (!address) return;
    const image = new Image();
    image.src = address;
    try {
      await image.decode();
    } catch {
      return; // a video that cannot be drawn has no strip
    }
    if (address !== this.address) return;
    this.image = image;
    this.draw(this.node.clientWidth);
  }

  /** As many pictures as fit into a width without being squeezed. */
  draw(width) {
    if (!this.image || !width) {
      this.node.replaceChildren();
      return;
    }
    const height = this.node.clientHeight;
    const wide = (this.image.naturalWidth / PICTURES / this.image.naturalHeight) * height;
    const shown = Math.min(Math.max(Math.round(width / wide), 1), PICTURES);
    if (shown !== this.node.children.length || this.node.dataset.address !== this.address) {
      this.node.dataset.address = this.address;
      this.node.replaceChildren(...Array.from({ length: shown }, () => element("i")));
    }
    [...this.node.children].forEach((cell, index) => {
      const picture = Math.floor(((index + 0.5) / shown) * PICTURES);
      const space = Math.max(width / shown - wide, 0) / 2;
      cell.style.backgroundImage = `url("${this.address}")`;
      cell.style.backgroundSize = `${wide * PICTURES}px ${height}px`;
      cell.style.backgroundPosition = `${-picture * wide}px 0`;
      cell.style.margin = `0 ${space}px`;
      cell.dataset.picture = picture;
    });
  }
}
