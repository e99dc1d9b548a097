// The REST service as functions. Every failure is an Error whose message is the server's own sentence.

import { chosenModel } from "./models.js";

const GUARD = { "X-Escounts": "1" };

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, body, more = {}) {
  const options = { method, headers: { ...GUARD }, credentials: "same-origin", ...more };
  if (body instanceof Blob) {
    options.headers["Content-Type"] = "application/octet-stream";
    options.body = body;
  } else if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError("The server does not answer.", 0);
  }
  if (!response.ok) throw new ApiError(await problem(response), response.status);
  if (response.status === 204) return null;
  const kind = response.headers.get("content-type") ?? "";
  return kind.includes("json") ? response.json() : response;
}

async function problem(response) {
  try {
    return (await response.json()).detail;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

export const api = {
  openSession: (token) => request("POST", "/api/session", { token }),
  limits: () => request("GET", "/api/limits"),
  videos: () => request("GET", "/api/videos"),
  video: (id) => request("GET", `/api/videos/${id}`),
  deleteVideo: (id) => request("DELETE", `/api/videos/${id}`),
  trash: () => request("GET", "/api/trash"),
  restore: (id) => request("POST", `/api/trash/${id}/restore`),
  media: () => request("GET", "/api/media"),
  chooseMedia: (file) => request("POST", "/api/media", { file }),
  count: (video, options = {}) => request("POST", "/api/jobs", { video, model: chosenModel(), ...options }),
  job: (id) => request("GET", `/api/jobs/${id}`),
  jobs: (video) => request("GET", `/api/jobs?video=${video}`),
  /** unit: "cycle" or "side", kept with the count; null for what the model counted. */
  chooseUnit: (id, unit) => request("PUT", `/api/jobs/${id}/unit`, { unit }),
  cancel: (id) => request("POST", `/api/jobs/${id}/cancel`),
  labels: (video) => request("GET", `/api/videos/${video}/labels`),
  saveLabels: (video, labels) => request("PUT", `/api/videos/${video}/labels`, labels),
  importLabelStudio: (video, task) => request("POST", `/api/videos/${video}/label-studio`, task),
  importLabels: (name, text) => request("POST", "/api/labels/import", { name, text }),
  exportAddress: (format) => `/api/labels/export/${format}`,
  trainings: () => request("GET", "/api/trainings"),
  train: (lesson) => request("POST", "/api/trainings", lesson),
  cancelTraining: (id) => request("POST", `/api/trainings/${id}/cancel`),
  models: () => request("GET", "/api/models"),
  beginLive: () => request("POST", "/api/live", { model: chosenModel() }),
  live: (id) => request("GET", `/api/live/${id}`),
  sendFrames: (id, frames) => request("POST", `/api/live/${id}/frames`, frames),
  markLive: (id, start, end) => request("POST", `/api/live/${id}/exemplars`, { start, end }),
  endLive: (id) => request("DELETE", `/api/live/${id}`, undefined, { keepalive: true }), // also while the page is left
  fileAddress: (video) => `/api/videos/${video}/file`,
  previewAddress: (video) => `/api/videos/${video}/preview`,
  thumbnailAddress: (video) => `/api/videos/${video}/thumbnail`,
  filmstripAddress: (video) => `/api/videos/${video}/filmstrip`,
  downloadAddress: (job, format) => `/api/jobs/${job}/download/${format}`,
  labelsAddress: (video) => `/api/videos/${video}/labels.csv`,
  labelStudioAddress: (video) => `/api/videos/${video}/label-studio`,
};

/** Sends a file as the body. onProgress(fraction, secondsLeft). Returns { promise of a video, cancel }. */
export function upload(file, name, source, onProgress) {
  const xhr = new XMLHttpRequest();
  const began = performance.now();
  const promise = new Promise((resolve, reject) => {
    xhr.open("POST", `/api/videos?name=${encodeURIComponent(name)}&source=${source}`);
    xhr.setRequestHeader("X-Escounts", "1");
    xhr.setRequestHeader("Content-Type", "application/octet-stream");
    xhr.responseType = "json";
    xhr.upload.onprogress = ({ loaded, total }) => {
      const elapsed = (performance.now() - began) / 1000;
      onProgress(loaded / total, (elapsed * (total - loaded)) / Math.max(loaded, 1));
    };
    xhr.onload = () =>
      xhr.status === 201
        ? resolve(xhr.response)
        : reject(new ApiError(xhr.response?.detail ?? `The server answered ${xhr.status}.`, xhr.status));
    xhr.onerror = () => reject(new ApiError("The upload broke off.", 0));
    xhr.onabort = () => reject(new ApiError("cancelled", -1));
    xhr.send(file);
  });
  return { promise, cancel: () => xhr.abort() };
}

/** Calls onJob and onTraining with every change of each; reconnects by itself. onState(true | false). */
export function follow({ onJob, onTraining, onState }) {
  const stream = new EventSource("/api/events");
  stream.addEventListener("job", (event) => onJob(JSON.parse(event.data)));
  stream.addEventListener("training", (event) => onTraining(JSON.parse(event.data)));
  stream.onopen = () => onState(true);
  stream.onerror = () => onState(false);
  return stream;
}

/** Downloads through fetch, so that a file that must be drawn first can be waited for and can fail politely. */
export async function download(address) {
  const response = await fetch(address, { credentials: "same-origin" });
  if (!response.ok) throw new ApiError(await problem(response), response.status);
  const disposition = response.headers.get("content-disposition") ?? "";
  const star = /filename\*=(?:UTF-8|utf-8)''([^;]+)/.exec(disposition);
  const plain = /filename="([^"]+)"/.exec(disposition);
  const name = star ? decodeURIComponent(star[1]) : plain ? plain[1] : "escounts";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return name;
}
