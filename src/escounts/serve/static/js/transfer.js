// Labels of all videos to and from other tools.

import { api, download } from "./api.js";
import { byId, toast } from "./format.js";

/** mayLeave(): whether corrections on screen may go. onImported(ids): these videos have other labels now. */
export function setUpTransfer({ mayLeave, onImported }) {
  byId("export").onchange = async ({ target }) => {
    const format = target.value;
    target.value = "";
    if (format) await download(api.exportAddress(format)).catch((error) => toast(error.message));
  };
  byId("import-all").onchange = async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (!file || !(await mayLeave())) return;
    try {
      const { saved, unknown, ambiguous, shortened, spread } = await api.importLabels(file.name, await file.text());
      toast(`Labels of ${saved.length} ${saved.length === 1 ? "video" : "videos"} imported.${
        unknown.length ? ` Not here: ${unknown.join(", ")}.` : ""}${
        ambiguous.length ? ` Several videos are called ${ambiguous.join(", ")}.` : ""}${
        shortened.length ? ` Cut to the end of the video: ${shortened.join(", ")}.` : ""}${
        spread.length ? ` Only counted, so spread evenly: ${spread.join(", ")}.` : ""}`);
      await onImported(saved);
    } catch (error) {
      toast(`${file.name}: ${error.message}`);
    }
  };
}
