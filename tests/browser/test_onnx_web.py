"""Both exported files under ONNX Runtime Web (WASM) in Chromium: the numbers of ONNX Runtime here.

Needs the npm package onnxruntime-web: ESCOUNTS_ORT_WEB names its `dist` folder.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import Browser

RUN = """async () => {
  ort.env.wasm.numThreads = 1;
  const open = (file) => ort.InferenceSession.create(file, { executionProviders: ["wasm"] });
  const zeros = (dims) => new ort.Tensor("float32", new Float32Array(dims.reduce((a, b) => a * b)), dims);
  const pixels = Uint8Array.from({ length: 10 * 64 * 64 * 3 }, (_, i) => (i * 7919) % 251);
  const images = new ort.Tensor("uint8", pixels, [1, 10, 64, 64, 3]);
  const seen = await (await open("encoder.onnx")).run({ images });
  const exemplars = zeros([1, 16, ...seen.tokens.dims.slice(2)]);
  const { tokens, similarity } = seen;
  const inputs = { tokens, similarity, exemplars, cells: zeros([1]), use: zeros([1]) };
  const said = await (await open("decoder.onnx")).run(inputs);
  return [similarity, said.gate_logits, said.period_logits].map((tensor) => Array.from(tensor.data));
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.browser
@pytest.mark.skipif(
    "ESCOUNTS_ORT_WEB" not in os.environ,
    reason="ESCOUNTS_ORT_WEB is not set: it names the dist folder of npm's onnxruntime-web, which .ci/run installs",
)
def test_a_browser_computes_the_same_numbers(browser: Browser, exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    for name in ("ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"):
        shutil.copy(Path(os.environ["ESCOUNTS_ORT_WEB"]) / name, tmp_path)
    (tmp_path / "index.html").write_text('<script src="ort.wasm.min.js"></script>')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    found = page.evaluate(RUN)
    page.close()
    server.shutdown()
    pixels = ((np.arange(10 * 64 * 64 * 3) * 7919) % 251).astype(np.uint8).reshape(1, 10, 64, 64, 3)
    tokens, similarity = onnxruntime.InferenceSession(tmp_path / "encoder.onnx").run(None, {"images": pixels})
    zeros = {"exemplars": np.zeros((1, 16, *tokens.shape[2:]), np.float32)}
    zeros |= {name: np.zeros(1, np.float32) for name in ("cells", "use")}
    decoder = onnxruntime.InferenceSession(tmp_path / "decoder.onnx")
    said = decoder.run(None, {"tokens": tokens, "similarity": similarity, **zeros})
    for mine, theirs in zip((similarity, *said[:2]), found, strict=True):
        np.testing.assert_allclose(theirs, mine.ravel(), atol=1e-3)
