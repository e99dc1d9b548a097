// Deleted videos that are still in the server's trash, and back with them.

import { api } from "./api.js";
import { byId, day, element, repetitions, toast } from "./format.js";

/** onRestored(video). Returns a function that looks what is there. */
export function setUpTrash(onRestored) {
  const restore = async (id) => {
    byId("trash-dialog").close();
    try {
      onRestored(await api.restore(id));
    } catch (error) {
      toast(error.message);
    }
    look();
  };
  const look = async () => {
    const deleted = await api.trash().catch(() => []);
    byId("trash-open").hidden = deleted.length === 0;
    byId("trash").replaceChildren(
      ...deleted.map(({ id, name, deleted: when, labelled_count: labels }) => {
        const kept = labels === null ? "" : ` · ${labels} labelled ${repetitions(labels)}`;
        return element(
          "li", {},
          element("span", {}, `${name} · ${day(when)}${kept}`),
          element("button", { class: "button small", "aria-label": `Restore ${name}`, onclick: () => restore(id) }, "Restore"),
        );
      }),
    );
  };
  byId("trash-open").onclick = () => byId("trash-dialog").showModal();
  return look;
}
