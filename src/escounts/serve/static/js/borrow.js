// Which repetition of another video is taken as the example: it is seen before it is chosen.

import { api } from "./api.js";
import { byId, element, span } from "./format.js";

/** Opens the dialog on a video and its repetitions. Answers with { start, end }, or null when it is closed. */
export function chooseRepetition(video, repetitions) {
  const dialog = byId("borrow-dialog");
  const view = byId("borrow-video");
  let chosen = 0;

  const show = (index) => {
    chosen = index;
    [...byId("borrow-spans").children].forEach((node, i) => {
      node.setAttribute("aria-selected", String(i === index));
      node.tabIndex = i === index ? 0 : -1;
    });
    view.currentTime = repetitions[index].start;
  };
  const option = (item, index) => {
    const node = element("li", { role: "option", tabindex: "-1" }, element("b", {}, String(index + 1)), ` ${span(item.start, item.end)}`);
    node.onclick = () => show(index);
    return node;
  };
  byId("borrow-spans").onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(Math.max(chosen + step, 0), repetitions.length - 1));
    byId("borrow-spans").children[chosen].focus();
  };
  view.ontimeupdate = () => {
    if (view.currentTime >= repetitions[chosen].end) view.currentTime = repetitions[chosen].start;
  };
  view.onended = () => view.play().catch(() => {});
  let copied = false;
  view.onerror = () => {
    if (copied || !view.getAttribute("src")) return;
    copied = true;
    view.src = api.previewAddress(video);
  };
  view.onloadedmetadata = () => {
    show(chosen);
    view.play().catch(() => {});
  };
  byId("borrow-spans").replaceChildren(...repetitions.map(option));
  view.src = api.fileAddress(video);
  show(clearest(repetitions));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    byId("borrow-use").onclick = () => dialog.close("use");
    dialog.onclose = () => {
      view.removeAttribute("src");
      view.load();
      resolve(dialog.returnValue === "use" ? repetitions[chosen] : null);
    };
  });
}

/** The one with the highest score; without scores the middle one, which is cut off least often. */
function clearest(repetitions) {
  const best = repetitions.reduce((a, b, i) => ((b.score ?? 0) > (repetitions[a].score ?? 0) ? i : a), 0);
  return (repetitions[best].score ?? null) === null ? Math.floor(repetitions.length / 2) : best;
}
