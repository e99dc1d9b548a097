// Boxes on the picture: the one that a count is kept to, drawn by hand, and the places where something repeats.

import { byId, element, repetitions } from "./format.js";

const LEAST = 0.04; // of the picture's width or height: less is a click that slipped
const TEXT = /^([\d.]+%?),([\d.]+%?),([\d.]+%?),([\d.]+%?)$/;

/** "25%,0%,50%,100%", or pixels of a picture of that size, as parts of it: [x, y, width, height]; null for none. */
export function parts(text, { width, height }) {
  const found = TEXT.exec((text ?? "").replaceAll(" ", ""));
  return found && found.slice(1).map((side, i) => parseFloat(side) / (side.endsWith("%") ? 100 : i % 2 ? height : width));
}

export class Boxes {
  /** player: the video element under the boxes. onDrawn(text): a box was drawn, in percent. onPlace(text): a place is
   * to be counted alone. */
  constructor(player, { onDrawn, onPlace }) {
    this.onPlace = onPlace;
    this.player = player;
    this.onDrawn = onDrawn;
    this.size = { width: 1, height: 1 };
    this.tracks = [];
    this.time = 0;
    this.layer = byId("boxes");
    this.region = element("div", { class: "box region-box", hidden: true });
    this.layer.append(this.region);
    byId("draw-box").onclick = () => this.#draw(!this.drawing);
    this.layer.addEventListener("pointerdown", (event) => this.#drag(event));
    player.addEventListener("loadedmetadata", () => this.#fit());
    new ResizeObserver(() => this.#fit()).observe(player);
  }

  /** video: as the library has it. */
  open(video) {
    this.size = { width: video.width || 1, height: video.height || 1 };
    this.#draw(false);
    this.showTracks([]);
  }

  /** text: of a count, or null. */
  showRegion(text) {
    const place = parts(text, this.size);
    this.region.hidden = !place;
    if (place) put(this.region, place);
  }

  /** tracks: as a result has them; each is drawn with its own number and colour. */
  showTracks(tracks) {
    for (const { node } of this.tracks) node.remove();
    this.tracks = tracks.map((track, index) => {
      const title = `Place ${index + 1}: ${track.count} ${repetitions(track.count)}. Count it alone`;
      const number = element("button", { title, "aria-label": title, onclick: () => this.onPlace(track.region) });
      const node = element("div", { class: `box track track-${index % 6}` }, number);
      put(node, parts(track.region, this.size) ?? [0, 0, 1, 1]);
      return { node, number, track };
    });
    this.layer.append(...this.tracks.map(({ node }) => node));
    this.setTime(this.time);
  }

  /** The numbers count along. */
  setTime(time) {
    this.time = time;
    for (const { number, track } of this.tracks) {
      const now = track.repetitions.filter(({ end }) => end <= time + 1e-3).length;
      number.textContent = `${now} of ${track.count}`;
    }
  }

  /** The layer lies on the picture itself, without the black beside it. */
  #fit() {
    const { clientWidth, clientHeight, videoWidth, videoHeight } = this.player;
    const [width, height] = [videoWidth || this.size.width, videoHeight || this.size.height];
    const scale = Math.min(clientWidth / width, clientHeight / height);
    Object.assign(this.layer.style, { width: `${width * scale}px`, height: `${height * scale}px` });
  }

  #draw(on) {
    this.drawing = on;
    this.layer.classList.toggle("drawing", on);
    byId("draw-box").setAttribute("aria-pressed", String(on));
    byId("draw-box").textContent = on ? "Drag a box" : "Box";
  }

  #drag(event) {
    if (!this.drawing || event.button !== 0) return;
    event.preventDefault();
    const area = this.layer.getBoundingClientRect();
    const at = ({ clientX, clientY }) =>
      [(clientX - area.left) / area.width, (clientY - area.top) / area.height].map((part) => Math.min(Math.max(part, 0), 1));
    const from = at(event);
    let place = null;
    const before = { hidden: this.region.hidden, style: this.region.style.cssText };
    const move = (next) => {
      const to = at(next);
      place = [0, 1].map((i) => Math.min(from[i], to[i])).concat([0, 1].map((i) => Math.abs(from[i] - to[i])));
      this.region.hidden = false;
      put(this.region, place);
    };
    const stop = (next) => {
      for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) window.removeEventListener(kind, act);
      if (next.type === "pointerup" && place && Math.min(place[2], place[3]) >= LEAST) {
        this.#draw(false);
        this.onDrawn(place.map((part) => `${Math.floor(part * 1000) / 10}%`).join(","));
      } else {
        this.region.hidden = before.hidden;
        this.region.style.cssText = before.style;
      }
    };
    for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) window.addEventListener(kind, act);
  }
}

function put(node, place) {
  ["left", "top", "width", "height"].forEach((side, i) => { node.style[side] = `${100 * place[i]}%`; });
}
