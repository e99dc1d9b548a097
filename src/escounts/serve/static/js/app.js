// Puts the page together: library on the left, one video on the stage.

import { api, follow } from "./api.js";
import { setUpCamera } from "./camera.js";
import { ask, openSession, setUpDialogs, setUpMedia, setUpTheme } from "./dialogs.js";
import { setFormats } from "./downloads.js";
import { byId, bytes, toast } from "./format.js";
import { setUpKeys } from "./keys.js";
import { Library } from "./library.js";
import { chooseModel, showModels } from "./models.js";
import { setUpSound } from "./sound.js";
import { Stage } from "./stage.js";
import { Teaching } from "./teach.js";
import { setUpTransfer } from "./transfer.js";
import { setUpTrash } from "./trash.js";

const SAMPLE = "sample.mp4";

const library = new Library({
  onOpen: open,
  onGone: (id) => {
    if (stage.video?.id === id) leave();
    lookIntoTrash();
  },
  onNew: open,
});

const stage = new Stage({
  others: () => [...library.videos.values()],
  onLabelled: (id, labels) => library.labelled(id, labels),
  onJob: (job) => library.update(job),
});

const teaching = new Teaching({
  videos: () => [...library.videos.values()],
  onUse: (name) => useModel(name).catch((error) => toast(error.message)),
});

const lookIntoTrash = setUpTrash((video) => library.count(video).catch((error) => toast(error.message)));

async function useModel(name) {
  chooseModel(name);
  showModels(await api.models());
  toast(`${name} counts from now on.${stage.video ? " Press Recount to see what it makes of this video." : ""}`);
}

async function home() {
  if (await stage.editor.mayLeave()) leave();
}

/** Back to the list, whatever was open. */
function leave() {
  stage.close();
  showPlace(null);
  document.title = "escounts";
}

async function open(video) {
  if (stage.video?.id !== video.id && !(await stage.editor.mayLeave())) return;
  showPlace(video);
  await stage.open(video);
}

/** What the address says and what is in view: the list alone on a phone, or the video. */
function showPlace(video) {
  library.select(video?.id ?? null);
  byId("welcome").hidden = video !== null;
  byId("workspace").hidden = video === null;
  byId("to-videos").hidden = video === null;
  byId("layout").classList.toggle("open", video !== null);
  const address = video ? `#video=${video.id}` : location.pathname;
  if (video ? location.hash !== address : location.hash) history.pushState(null, "", address);
}

const placed = () => library.videos.get(new URLSearchParams(location.hash.slice(1)).get("video"));

/** The browser's own back and forward. Where corrections hold on to the video, the address goes back to it. */
async function onHistory() {
  const wanted = placed();
  if (wanted?.id === stage.video?.id) return;
  if (wanted) await open(wanted);
  else await home();
  if (stage.video && stage.video.id !== wanted?.id) history.pushState(null, "", `#video=${stage.video.id}`);
}

/** An event of the stream. */
async function onJob(job) {
  const known = library.videos.has(job.video);
  if (!known) await library.refresh().catch(() => {});
  // While a new video's list was on its way it may have been opened: what this event says still has to be shown.
  if (!library.update(job) && known) return;
  stage.prompt.offer([...library.videos.values()]);
  if (job.video === stage.video?.id && !stage.result) await stage.showLatest();
}

/** The stream tells what changes from now on: asked for once it is open, the list misses nothing before that. */
async function catchUp() {
  await library.refresh();
  stage.prompt.offer([...library.videos.values()]);
  const { video } = stage;
  if (!video) {
    const wanted = placed();
    if (wanted) await open(wanted);
  } else if (!library.videos.has(video.id)) {
    leave();
  } else if (!stage.result) {
    await stage.showLatest();
  }
}

function setUpControls() {
  byId("play").onclick = () => stage.player.toggle();
  byId("next").onclick = () => stage.jump(1);
  byId("previous").onclick = () => stage.jump(-1);
  byId("speed").onchange = (event) => { stage.player.speed = Number(event.target.value); };
  byId("zoom-in").onclick = () => stage.timeline.setZoom(stage.timeline.zoom * 2);
  byId("zoom-out").onclick = () => stage.timeline.setZoom(stage.timeline.zoom / 2);
  byId("looping").onclick = () => stage.timeline.choose(null);
  byId("use-chosen").onclick = () => stage.useChosen();
  byId("add-span").onclick = () => stage.addHere();
  byId("home").onclick = (event) => { event.preventDefault(); home(); };
  byId("to-videos").onclick = home;
  byId("file").onchange = (event) => {
    library.addAll([...event.target.files]);
    event.target.value = "";
    event.target.blur(); // or Space would open it again
  };
  byId("retry").onclick = () => retry().catch((error) => toast(error.message));
  for (const id of ["delete-video", "remove-video"]) byId(id).onclick = () => remove(stage.video);
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.onchange = () => stage.setMode(radio.value);
  window.addEventListener("popstate", () => onHistory().catch((error) => toast(error.message)));
}

async function retry() {
  const { video } = stage;
  library.update(await api.count(video.id, { exemplars: video.job?.exemplars ?? [], region: video.job?.region, each: video.job?.each }));
  await stage.showLatest();
}

async function remove(video) {
  const labels = video.labelled ? " and your labels" : "";
  const failed = video.job?.state === "failed";
  const sure = failed || (await ask(`Delete ${video.name}?`, `Its counts${labels} are deleted too.`, [
    ["delete", "Delete", "danger"], ["", "Keep", ""],
  ])) === "delete";
  if (sure) await library.remove(video.id).catch((error) => toast(error.message));
}

function setUpWelcome() {
  byId("welcome-choose").onclick = () => byId("file").click();
  byId("welcome-record").onclick = () => byId("record").click();
  byId("try-sample").onclick = async () => {
    try {
      const answer = await fetch(SAMPLE);
      library.add(await answer.blob(), { name: SAMPLE });
    } catch {
      toast("The server does not answer.");
    }
  };
}

function setUpDrop() {
  let depth = 0;
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  window.addEventListener("dragenter", (event) => { if (hasFiles(event)) { depth += 1; document.body.classList.add("dropping"); } });
  window.addEventListener("dragleave", () => { depth = Math.max(depth - 1, 0); document.body.classList.toggle("dropping", depth > 0); });
  window.addEventListener("dragover", (event) => event.preventDefault());
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    document.body.classList.remove("dropping");
    library.addAll([...(event.dataTransfer?.files ?? [])]);
  });
}

async function begin() {
  setUpTheme();
  setUpDialogs();
  setUpControls();
  setUpDrop();
  setUpWelcome();
  setUpKeys({
    toggle: () => stage.player.toggle(),
    seek: (by) => stage.seekBy(by),
    jump: (direction) => stage.jump(direction),
    recount: () => stage.prompt.recount(),
    add: () => stage.timeline.mode === "correct" && stage.addHere(),
    undo: () => stage.editor.undo(),
    redo: () => stage.editor.redo(),
    remove: () => stage.timeline.mode === "correct" && stage.editor.deleteChosen(),
    mark: () => stage.markHere(),
    mode: (mode) => stage.setMode(mode),
    letGo: () => stage.timeline.choose(null),
    help: () => byId("help").click(),
    open: () => stage.video !== null,
  });
  setUpTransfer({
    mayLeave: () => stage.editor.mayLeave(),
    onImported: async (ids) => {
      await library.refresh();
      if (ids.includes(stage.video?.id)) await stage.reload();
    },
  });
  setUpCamera((blob, name) => library.add(blob, { name, source: "camera" }));
  setUpSound();
  setUpMedia((video) => library.count(video).catch((error) => toast(error.message)));
  const limits = await openSession();
  setFormats(limits.titles);
  byId("limits").textContent = `Up to ${bytes(limits.max_upload)}${limits.keep_days ? `, kept for ${limits.keep_days} days` : ""}`;
  byId("browse").hidden = !limits.media_root;
  byId("model").textContent = limits.model;
  byId("model-choice").onchange = (event) => useModel(event.target.value).catch((error) => toast(error.message));
  showModels(await api.models());
  lookIntoTrash();
  let begun = false;
  const onState = (alive) => {
    byId("connection").hidden = alive;
    if (alive || !begun) catchUp().catch((error) => toast(error.message));
    begun = true;
  };
  follow({ onJob, onTraining: (training) => teaching.update(training), onState });
}

begin().catch((error) => toast(error.message));
