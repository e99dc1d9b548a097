// Puts the page together: library on the left, one video on the stage.

import { api, follow } from "./api.js";
import { setUpCamera } from "./camera.js";
import { curvePath } from "./curve.js";
import { openSession, setUpDialogs, setUpMedia, setUpTheme } from "./dialogs.js";
import { Editor } from "./editor.js";
import { announce, byId, bytes, clock, repetitions, toast } from "./format.js";
import { setUpKeys } from "./keys.js";
import { Library } from "./library.js";
import { Player } from "./player.js";
import { Prompt } from "./prompt.js";
import { Timeline } from "./timeline.js";
import { showBusy, showDownloads, showNothing, showKept, showProblem, showResult, showTempo, showTotal } from "./verdict.js";

const HINTS = {
  example: "Drag over one repetition to mark it as the example, then Recount. Click a span to jump to it.",
  correct: "Drag a span or its edges, drag over an empty place to add one, Delete removes the chosen one.",
};
const ACTIVE = new Set(["queued", "running"]);

const stage = { video: null, job: null, result: null, counted: -1 };

const timeline = new Timeline(byId("timeline"), {
  onSeek: (time) => player.seek(time),
  onJump: (index) => player.seek(timeline.spans[index].start),
  onExemplar: (start, end) => prompt.addExemplar(start, end),
  onExemplarMoved: (index, start, end) => prompt.moveExemplar(index, start, end),
  onRange: (start, end) => prompt.setRange(start, end),
  onSpans: (spans, chosen) => editor.change(spans, chosen),
  onChoose: (index) => { byId("delete-span").disabled = index < 0; },
});

const player = new Player(byId("player"), {
  onTime: showTime,
  onState: (playing) => {
    byId("play").classList.toggle("playing", playing);
    byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  },
  onProblem: (message) => {
    byId("unplayable").hidden = message === null;
    byId("unplayable").textContent = message ?? "";
  },
});

const editor = new Editor(timeline, {
  onChange: () => {
    stage.counted = -1;
    showTime(player.time);
    showTempo(editor.spans);
    if (stage.result) showTotal(editor.spans.length, stage.result);
  },
  onSaved: () => { stage.video.labelled = true; },
});

const prompt = new Prompt(timeline, {
  onResult: async (job) => {
    if (job.state === "done") await showJob(job, { recount: true });
    else if (job.error) toast(job.error);
  },
  onShow: async (id) => showJob(await api.job(id), { recount: true }),
});

const library = new Library({
  onOpen: open,
  onGone: (id) => { if (stage.video?.id === id) home(); },
  onNew: open,
});

function showTime(time) {
  timeline.setTime(time);
  byId("clock").textContent = `${clock(time)} / ${clock(timeline.duration)}`;
  const now = editor.spans.filter((item) => item.end <= time + 1e-3).length;
  if (now === stage.counted) return;
  byId("tally-now").textContent = now;
  byId("tally-all").textContent = `of ${editor.spans.length}`;
  byId("tally").setAttribute("aria-label", `${now} of ${editor.spans.length} repetitions so far`);
  byId("tally").classList.toggle("bump", now > stage.counted && stage.counted >= 0);
  stage.counted = now;
}

function home() {
  stage.video = stage.job = stage.result = null;
  player.unload();
  byId("workspace").hidden = true;
  byId("welcome").hidden = false;
  library.select(null);
  document.title = "escounts";
  history.replaceState(null, "", location.pathname);
}

async function open(video) {
  const again = stage.video?.id === video.id;
  stage.video = video;
  library.select(video.id);
  byId("welcome").hidden = true;
  byId("workspace").hidden = false;
  byId("verdict-name").textContent = video.name;
  byId("verdict-name").title = video.name;
  showKept(video);
  if (!again) {
    history.replaceState(null, "", `#video=${video.id}`);
    clear(video);
    player.load(api.fileAddress(video.id));
  }
  await showLatest(video);
}

function clear(video) {
  stage.job = stage.result = null;
  showNothing();
  timeline.setZoom(1);
  timeline.setDensity(null, video.duration ?? 1);
  editor.open(video.id, [], null);
  prompt.open(video.id, video.duration ?? 1, { exemplars: [], start: null, end: null });
  prompt.showHistory([], null);
  byId("downloads").replaceChildren();
}

/** The newest job that is done, with a newer one that runs shown as busy. */
async function showLatest(video) {
  const { job } = video;
  if (!job) return;
  if (ACTIVE.has(job.state)) {
    if (!stage.result) showBusy(job);
    return;
  }
  try {
    const jobs = await api.jobs(video.id);
    const done = jobs.find((candidate) => candidate.state === "done");
    if (stage.video?.id !== video.id) return;
    if (done) await showJob(await api.job(done.id));
    else if (!stage.result) showProblem(job.state === "failed" ? job.error : "This count was cancelled.");
  } catch (error) {
    toast(error.message);
  }
}

async function showJob(job, { recount = false } = {}) {
  const { video } = stage;
  if (!video || job.video !== video.id || !job.result) return;
  const jobs = await api.jobs(video.id);
  const labels = recount || !video.labelled ? null : await api.labels(video.id).catch(() => null);
  if (stage.video !== video || (!recount && stage.job?.id === job.id)) return;
  player.offer(api.previewAddress(video.id));
  stage.job = job;
  stage.result = job.result;
  video.duration = job.result.duration;
  timeline.setDensity(job.result.density, job.result.duration);
  if (recount) editor.recounted(job.result.repetitions);
  else editor.open(video.id, job.result.repetitions, labels);
  prompt.open(video.id, job.result.duration, job);
  prompt.offer([...library.videos.values()]);
  prompt.showHistory(jobs, job.id);
  showResult(job.result, editor.spans.length);
  showDownloads(job.id);
  const sure = job.result.unsure ? "not sure" : `${Math.round(job.result.confidence * 100)} percent sure`;
  document.title = `${job.result.count} · ${video.name}`;
  announce(`${job.result.count} ${repetitions(job.result.count)}, ${sure}`);
}

/** An event of the stream. */
async function onJob(job) {
  if (!library.videos.has(job.video)) {
    await library.refresh().catch(() => {});
    return;
  }
  if (!library.update(job)) return;
  prompt.offer([...library.videos.values()]);
  if (job.video === stage.video?.id && !stage.result) await showLatest(stage.video);
}

/** The stream tells what changes from now on: asked for once it is open, the list misses nothing before that. */
async function catchUp() {
  await library.refresh();
  prompt.offer([...library.videos.values()]);
  const { video } = stage;
  if (!video) {
    const wanted = library.videos.get(new URLSearchParams(location.hash.slice(1)).get("video"));
    if (wanted) await open(wanted);
  } else if (!library.videos.has(video.id)) {
    home();
  } else if (!stage.result) {
    await showLatest(video);
  }
}

function setUpControls() {
  byId("play").onclick = () => player.toggle();
  byId("next").onclick = () => jump(1);
  byId("previous").onclick = () => jump(-1);
  byId("speed").onchange = (event) => { player.speed = Number(event.target.value); };
  byId("zoom-in").onclick = () => timeline.setZoom(timeline.zoom * 2);
  byId("zoom-out").onclick = () => timeline.setZoom(timeline.zoom / 2);
  byId("home").onclick = (event) => { event.preventDefault(); home(); };
  byId("file").onchange = (event) => {
    library.addAll([...event.target.files]);
    event.target.value = "";
  };
  byId("add-span").onclick = () => {
    setMode("correct");
    const lengths = editor.spans.map((item) => item.end - item.start).sort((a, b) => a - b);
    const length = Math.min(lengths[Math.floor(lengths.length / 2)] ?? 1, timeline.duration);
    const start = Math.min(player.time, timeline.duration - length);
    timeline.addSpan(start, start + length);
  };
  byId("delete-video").onclick = async () => {
    const { video } = stage;
    if (video && confirm(`Delete ${video.name} with its counts and labels?`)) {
      await library.remove(video.id).catch((error) => toast(error.message));
    }
  };
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.onchange = () => setMode(radio.value);
  setMode("example");
}

function setMode(mode) {
  document.querySelector(`input[name=mode][value=${mode}]`).checked = true;
  timeline.setMode(mode);
  byId("hint").textContent = HINTS[mode];
}

function jump(direction) {
  const starts = editor.spans.map((item) => item.start);
  const now = player.time;
  const target = direction > 0 ? starts.find((s) => s > now + 0.02) : starts.findLast((s) => s < now - 0.2);
  if (target !== undefined) player.seek(target);
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

function drawWelcome() {
  const values = Array.from({ length: 120 }, (_, i) => Math.max(0, Math.sin((i / 120) * Math.PI * 16 - 1.57) + 0.75) * Math.sin((i / 120) * Math.PI) ** 0.4);
  byId("welcome-curve").setAttribute("d", curvePath({ start: 0, step: 1, values }, 120));
  byId("welcome-curve").setAttribute("transform", "scale(0.64 1.15)");
}

async function begin() {
  setUpTheme();
  setUpDialogs();
  setUpControls();
  setUpDrop();
  drawWelcome();
  setUpKeys({
    toggle: () => player.toggle(),
    seek: (by) => player.seek(Math.min(Math.max(player.time + by, 0), timeline.duration)),
    jump,
    recount: () => prompt.recount(),
    undo: () => editor.undo(),
    remove: () => timeline.mode === "correct" && timeline.chosen >= 0 && timeline.deleteSpan(timeline.chosen),
    mark: () => {
      const here = editor.spans.find((item) => item.start <= player.time && player.time < item.end);
      if (here) prompt.addExemplar(here.start, here.end);
    },
    open: () => stage.video !== null,
  });
  setUpCamera((blob, name) => library.add(blob, { name, source: "camera" }));
  setUpMedia((video) => library.count(video).catch((error) => toast(error.message)));
  const limits = await openSession();
  byId("limits").textContent = `Up to ${bytes(limits.max_upload)}${limits.keep_days ? `, kept for ${limits.keep_days} days` : ""}`;
  byId("browse").hidden = !limits.media_root;
  byId("model").textContent = limits.model;
  let begun = false;
  follow(onJob, (alive) => {
    byId("connection").hidden = alive;
    if (alive || !begun) catchUp().catch((error) => toast(error.message));
    begun = true;
  });
}

begin().catch((error) => toast(error.message));
