// Token, server files, keyboard help, questions, and the theme.

import { api } from "./api.js";
import { byId, element, toast } from "./format.js";

export function setUpDialogs() {
  for (const button of document.querySelectorAll("[data-close]")) {
    button.onclick = () => button.closest("dialog").close();
  }
  byId("help").onclick = () => byId("help-dialog").showModal();
}

/** Asks a question. choices: [[value, text, class]]; answers with a value, or "" when the dialog is closed. */
export function ask(title, text, choices) {
  const dialog = byId("ask-dialog");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  return new Promise((resolve) => {
    const answer = (value) => {
      resolve(value);
      dialog.close();
    };
    byId("ask-choices").replaceChildren(
      ...choices.map(([value, name, kind]) =>
        element("button", { class: `button ${kind}`, "data-choice": value, onclick: () => answer(value) }, name)),
    );
    // The event comes a moment after a dialog has closed: it may be that of the question before this one.
    dialog.onclose = () => { if (!dialog.open) resolve(""); };
    dialog.showModal();
  });
}

export function setUpTheme() {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => localStorage.getItem("escounts-theme");
  const apply = () => {
    root.dataset.theme = stored() ?? (preferred.matches ? "dark" : "light");
  };
  preferred.addEventListener("change", apply);
  byId("theme").onclick = () => {
    localStorage.setItem("escounts-theme", root.dataset.theme === "dark" ? "light" : "dark");
    apply();
  };
  apply();
}

/** Lets the page in: with the token of the address, or by asking for it. */
export async function openSession() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname);
    await api.openSession(given).catch(() => {});
  }
  try {
    return await api.limits();
  } catch (error) {
    if (error.status !== 401) throw error;
    await askForToken();
    return api.limits();
  }
}

function askForToken() {
  const dialog = byId("token-dialog");
  dialog.showModal();
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return new Promise((resolve) => {
    byId("token-form").onsubmit = async (event) => {
      event.preventDefault();
      try {
        await api.openSession(byId("token").value);
        dialog.close();
        resolve();
      } catch (error) {
        byId("token-problem").hidden = false;
        byId("token-problem").textContent = error.message;
      }
    };
  });
}

/** onChosen(video): a file under the media root was taken. */
export function setUpMedia(onChosen) {
  const dialog = byId("media-dialog");
  let files = [];
  const draw = () => {
    const wanted = byId("media-filter").value.toLowerCase();
    const shown = files.filter((file) => file.toLowerCase().includes(wanted)).slice(0, 200);
    byId("media").replaceChildren(
      ...(shown.length ? shown.map((file) => element("li", {}, choice(file))) : [element("li", { class: "muted" }, "No videos.")]),
    );
  };
  const choice = (file) =>
    element("button", {
      onclick: async () => {
        dialog.close();
        try {
          onChosen(await api.chooseMedia(file));
        } catch (error) {
          toast(error.message);
        }
      },
    }, file);
  byId("browse").onclick = async () => {
    try {
      files = await api.media();
    } catch (error) {
      toast(error.message);
      return;
    }
    byId("media-filter").value = "";
    draw();
    dialog.showModal();
  };
  byId("media-filter").oninput = draw;
}
