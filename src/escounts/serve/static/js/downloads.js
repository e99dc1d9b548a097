// The files that can be taken away: of the count on screen, in the unit that was chosen, with saved corrections.

import { api, download } from "./api.js";
import { byId, element, toast } from "./format.js";

let formats = [];

/** titles: format → what people call it, as GET /api/limits has them. */
export function setFormats(titles) {
  formats = Object.entries(titles).reverse();
}

/** unit: "cycle", "side" or null for the count as it came. */
export function showDownloads(jobId, unit) {
  byId("download-state").textContent = "";
  byId("downloads").replaceChildren(
    ...formats.map(([format, name]) => {
      const button = element("button", { class: "button", "data-format": format }, name, element("small", {}, format));
      button.onclick = async () => {
        button.classList.add("busy");
        byId("download-state").textContent = `Making the ${name.toLowerCase()}…`;
        try {
          byId("download-state").textContent = `${await download(api.downloadAddress(jobId, format, unit))} is ready.`;
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

/** Says whose word the files are. saved: labels or null; dirty: corrections that are not saved. */
export function showWhoseWord({ saved, dirty, count }) {
  byId("download-note").hidden = !saved && !dirty;
  byId("download-note").textContent = dirty
    ? "Your last corrections are not in these files until you save them."
    : saved ? `Corrected: these files say ${saved.spans.length}, with the model's ${count} beside it.` : "";
}
