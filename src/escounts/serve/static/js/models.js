// Which model counts: the server's own, or one that was chosen here by its name.

import { byId, element } from "./format.js";

const KEY = "escounts-model";

/** The name of the chosen model, or null for the server's own. */
export const chosenModel = () => localStorage.getItem(KEY);

/** models: as GET /api/models lists them. Shows the one that counts; a choice where there are several. */
export function showModels(models) {
  const own = models.find((model) => model.default)?.name;
  const known = models.some((model) => model.name === chosenModel());
  if (!known || chosenModel() === own) localStorage.removeItem(KEY);
  const current = chosenModel() ?? own;
  byId("model").hidden = models.length > 1;
  byId("model").textContent = current ?? "";
  byId("model-choice").hidden = models.length < 2;
  byId("model-choice").replaceChildren(
    ...models.map(({ name, summary }) => element("option", { value: name, title: summary }, name)),
  );
  byId("model-choice").value = current;
}

export function chooseModel(name) {
  localStorage.setItem(KEY, name);
}
