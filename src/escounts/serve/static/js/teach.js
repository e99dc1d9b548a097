// Teaching the model one's own action: labelled videos, a name, progress, before and after, and the model by its name.

import { api } from "./api.js";
import { ask } from "./dialogs.js";
import { byId, element, left, percent, toast } from "./format.js";

const FEWEST = 3;
const STAGES = { encoding: "reading the videos", checking: "leaving each video out once", training: "learning from all of them" };

export class Teaching {
  /** videos(): all videos of the library. onUse(name): the person wants this model to count. */
  constructor({ videos, onUse }) {
    this.videos = videos;
    this.onUse = onUse;
    this.training = null;
    this.heard = 0; // events so far: an answer that was on its way when one came is older than it
    this.choices = new Map(); // video → whether the person checked it
    this.dismissed = null; // the id of the training whose report was put away with "Train again"
    byId("teach-fewest").textContent = FEWEST;
    byId("teach-open").onclick = () => this.open();
    byId("teach-form").onsubmit = (event) => {
      event.preventDefault();
      this.#start(byId("teach-name").value.trim()).catch((error) => this.#problem(error.message));
    };
    byId("teach-cancel").onclick = () => api.cancelTraining(this.training.id).catch((error) => this.#problem(error.message));
    byId("teach-again").onclick = () => {
      this.dismissed = this.training.id;
      this.#show(null);
    };
    byId("teach-name").oninput = () => this.#problem(null);
    byId("teach-videos").onchange = ({ target }) => {
      this.choices.set(target.value, target.checked);
      this.#countChosen();
    };
    byId("teach-use").onclick = () => {
      byId("teach-dialog").close();
      this.onUse(this.training.report.model);
    };
  }

  /** What is known is shown at once; what the server says of the newest training follows. */
  async open() {
    byId("teach-dialog").showModal();
    this.#show(this.training);
    try {
      const { heard } = this;
      const [latest] = await api.trainings();
      if (heard === this.heard) this.#show(latest && !this.#isOver(latest) ? latest : null);
    } catch (error) {
      this.#problem(error.message);
    }
  }

  async #start(name) {
    this.#problem(null);
    const taken = (await api.models()).some((model) => model.own && model.name === name);
    const replace = taken && (await ask(`Replace ${name}?`, "There is a model of that name that you taught before.", [
      ["replace", "Replace it", "danger"], ["", "Keep it", ""],
    ])) === "replace";
    if (taken && !replace) return;
    const started = await api.train({ name, videos: this.#chosen(), replace, shared: byId("teach-shared").checked });
    if (this.training?.id !== started.id) this.#show(started); // else the stream was quicker, and knows more
  }

  /** Ended, and there is nothing of it left to show. */
  #isOver({ id, state }) {
    return state === "cancelled" || (id === this.dismissed && state !== "running");
  }

  /** An event of the stream: how far it is, also while the dialog is closed. */
  update(training) {
    if (this.training && training.id !== this.training.id && training.state !== "running") return;
    this.heard += 1;
    const ended = this.training?.state === "running" && training.state !== "running";
    this.#show(this.#isOver(training) ? null : training);
    if (ended && !byId("teach-dialog").open && training.state !== "cancelled") {
      toast(`${training.name}: ${training.report?.message ?? training.error}`);
    }
  }

  /** training: as GET /api/trainings lists it, or null before there is one. */
  #show(training) {
    this.training = training;
    const state = training?.state ?? "none";
    byId("teach-ask").hidden = state === "running" || state === "done";
    byId("teach-busy").hidden = byId("teach-cancel").hidden = state !== "running";
    byId("teach-done").hidden = byId("teach-again").hidden = state !== "done";
    byId("teach-use").hidden = !training?.report?.model;
    this.#problem(state === "failed" ? training.error : null);
    if (state === "running") {
      byId("teach-stage").textContent =
        `${training.name}: ${STAGES[training.stage] ?? "starting"}, ${percent(training.progress)} ${left(training.remaining_s)}`;
      byId("teach-progress").value = training.progress;
    } else if (state === "done") {
      this.#showReport(training);
    } else {
      this.#showLabelled();
    }
  }

  /** All labelled videos; checked are those of the commonest action, until the person checks others. */
  #showLabelled() {
    const labelled = this.videos().filter((video) => video.labelled);
    const often = new Map();
    for (const { action } of labelled) often.set(action, (often.get(action) ?? 0) + 1);
    const commonest = [...often].sort((a, b) => b[1] - a[1])[0]?.[0];
    const wanted = (video) => this.choices.get(video.id) ?? video.action === commonest;
    byId("teach-videos").replaceChildren(
      ...labelled.map((video) => {
        const box = element("input", { type: "checkbox", value: video.id, checked: wanted(video), "data-action": video.action });
        const action = video.action ? ` ${video.action}` : "";
        return element("li", {}, element("label", { class: "check", title: video.name }, box, `${video.name} · ${video.labelled_count}${action}`));
      }),
    );
    this.#countChosen();
  }

  #chosen() {
    return [...byId("teach-videos").querySelectorAll("input:checked")].map((box) => box.value);
  }

  #countChosen() {
    const { length } = this.#chosen();
    const more = FEWEST - length;
    byId("teach-total").textContent = `${length} labelled ${length === 1 ? "video" : "videos"}${more > 0 ? `; ${more} more needed` : ""}`;
    byId("teach-start").disabled = more > 0;
    const actions = new Set([...byId("teach-videos").querySelectorAll("input:checked")].map((box) => box.dataset.action || "without a name"));
    byId("teach-mixed").hidden = actions.size < 2;
    byId("teach-mixed").textContent = `Different actions: ${[...actions].join(", ")}. One repetition must mean the same in all of them.`;
  }

  #showReport({ report }) {
    byId("teach-message").textContent = `${report.message.charAt(0).toUpperCase()}${report.message.slice(1)}.`;
    byId("teach-rows").replaceChildren(
      ...report.videos.map(({ name, labelled, before, after }) =>
        element("tr", {}, element("td", { title: name }, name), element("td", {}, String(labelled)), cell(before, labelled), cell(after, labelled))),
    );
    byId("teach-use").textContent = `Count with ${report.model} from now on`;
  }

  #problem(message) {
    byId("teach-problem").hidden = !message;
    byId("teach-problem").textContent = message ?? "";
  }
}

const cell = (count, labelled) => element("td", { class: count === labelled ? "right" : "wrong" }, String(count));
