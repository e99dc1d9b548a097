"""How fast this machine counts: the default model, baselines and rivals on one video, by turns, as a table.

    python benchmarks/engines.py [--quick] [--device auto|cpu|cuda] [--video FILE] [--rounds 3] [--by-processor]
                                 [--json]

An engine is a model, on a device, in a precision, run by something: reading, encoder, decoder and all of it end to
end are timed, in a process of its own, so that its peak of memory is its own. --quick: ten seconds of video, and only
what counting uses. --by-processor: rates per second of processor, where others use the machine, too.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from footage import decode, in_child, looped, peak_megabytes, processor_name, segment, timed
from report import arguments
from report import markdown as table
from torch import nn

from escounts.counter import Counter, EncodedVideo, load
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.paper_windows import PaperWindowModel
from escounts.counting.spectral import RATE, SIDE, Spectral
from escounts.counting.views import BASE_RATE
from escounts.errors import EscountsError, ModelError
from escounts.models import catalogue
from escounts.models.from_checkpoint import OnnxDecoder, OnnxEncoder, RunGraph, build_model
from escounts.models.onnx_export import DecoderGraph, EncoderGraph, export_onnx
from escounts.nn.decoder import PAPER
from escounts.nn.device import counting_precision
from escounts.nn.encoders.registry import ENCODERS, build_encoder
from escounts.nn.network import Network, NetworkConfig
from escounts.results import CountResult
from escounts.video.files import Frame, Video

T = TypeVar("T")
PYTORCH, PLAIN, ONNX, TRANSFORMERS, NUMPY, DECODING = (
    *("PyTorch", "PyTorch, written plainly", "ONNX Runtime", "transformers", "NumPy", "PyAV"),
)
MINUTE = 6
"""Segments of the footage."""
PAPER_SECONDS = 4
"""Of video for the paper's encoders: a minute would take a processor a quarter of an hour."""
PARTS = ("end to end", "decoding", "encoder", "decoder")
RIVALS = ("mae-vit-b", "videomae-b", "swin3d-t")


@dataclass(frozen=True)
class Engine:
    """model: a name of `escounts models`, or an encoder of the paper, which gets random weights. precision: float32
    or bf16. runs: what computes it, one of the words above. folder: an exported model, for ONNX Runtime."""

    model: str
    device: str = "cpu"
    precision: str = "float32"
    runs: str = PYTORCH
    folder: str | None = None


@dataclass(frozen=True)
class Speed:
    """What a video that lasts `seconds` took an engine, in seconds: on the wall, and of all cores together.

    Both by part: "end to end", "decoding" (reading frames as the model wants them), "encoder", "decoder", where the
    engine has that part. start: building and loading the model, not in any of them."""

    engine: Engine
    seconds: float
    wall: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    start: float | None = None
    peak_mb: float | None = None
    count: float | None = None
    error: str | None = None


def measure(engine: Engine, path: Path) -> Speed:
    """Time one engine on one video, in this process; what it lacks is the error of the Speed."""
    video = Video(path)
    speed = Speed(engine, video.info.duration)
    try:
        if engine.runs == DECODING:
            _time(speed, "decoding", lambda: decode(str(path)))
        elif engine.runs == TRANSFORMERS:
            speed = _transformers(speed)
        else:
            model, start, _ = timed(lambda: _model(engine))
            speed = _counted(replace(speed, start=start), model, video)
    except (EscountsError, ImportError, MemoryError, RuntimeError) as error:
        return Speed(engine, speed.seconds, error=f"{type(error).__name__}: {error}".splitlines()[0])
    megabytes = peak_megabytes() if engine.device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
    return replace(speed, peak_mb=megabytes)


def _model(engine: Engine) -> Any:
    """The counting model of an engine; a ModelError where it can only lose."""
    if engine.precision == "bf16" and (gain := bf16_speedup(torch.device(engine.device))) < 1:
        raise ModelError(f"a product in bf16 takes {1 / gain:.1f} times as long as in float32 here")
    if engine.model == "spectral":
        return Spectral()
    if engine.runs == ONNX:
        return build_model(Path(str(engine.folder)), "cpu")
    if engine.model in ENCODERS and engine.model != "lite":
        return paper_model(engine)
    model = catalogue.build(engine.model, engine.device)
    if isinstance(model, MultiRateModel):
        model.precision = "bf16" if engine.precision == "bf16" else "float32"
        if engine.runs == PLAIN:
            return _plainly(model, engine.device)
    return model


def bf16_speedup(device: torch.device, side: int = 512) -> float:
    """How many times faster a matrix product is in bf16 than in float32 here, measured by turns; below 1 on a
    processor without units for it, which computes it by way of float32."""
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    pairs = {dtype: torch.randn(2, side, side, device=device).to(dtype) for dtype in best}
    for _ in range(4):  # the first of them warms up
        for dtype, (a, b) in pairs.items():
            began = time.perf_counter()
            (a @ b)[0, 0].item()  # waits for a GPU
            best[dtype] = min(best[dtype], time.perf_counter() - began)
    return best[torch.float32] / best[torch.bfloat16]


def paper_model(engine: Engine) -> PaperWindowModel:
    """An encoder and the decoder of the paper, with random weights: they take the time that trained ones take."""
    encoder = build_encoder(engine.model)
    decoder = replace(PAPER, in_channels=encoder.spec.channels, grid=(6, 6))
    network = Network(NetworkConfig(engine.model, {}, decoder), encoder=encoder)
    return PaperWindowModel(engine.model, network, device=engine.device)


def _by_pytorch(graph: nn.Module, device: str) -> RunGraph:
    """A graph written plainly, run by PyTorch where ONNX Runtime would run its exported form."""
    graph.eval().to(device)

    def run(inputs: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        with torch.inference_mode(), torch.device(device):
            found = graph(*(torch.from_numpy(array).to(device) for array in inputs.values()))
        return [tensor.cpu().numpy() for tensor in found]

    return run


def _plainly(model: MultiRateModel, device: str = "cpu") -> MultiRateModel:
    """The same arithmetic as the equations stand: attention as a softmax of a matrix, each window from its pixels.
    device: where the two graphs are; what they give comes back."""
    network = model.network
    encoder = OnnxEncoder(network.encoder.config, _by_pytorch(EncoderGraph(network), device))  # type: ignore[arg-type]
    decoder = OnnxDecoder(network.decoder.config, _by_pytorch(DecoderGraph(network), device))
    plain = Network(network.config, encoder=encoder, decoder=decoder)
    return MultiRateModel(model.name, plain, precision="float32", calibration=model.calibration)


def _time(speed: Speed, part: str, work: Callable[[], T], *, times: float = 1.0) -> T:
    """What the work gives; it took the part 1 / times of its time, which the speed keeps. A GPU has then done it."""

    def done() -> T:
        value = work()
        if speed.engine.device != "cpu":
            torch.cuda.synchronize()
        return value

    value, wall, processor = timed(done)
    speed.wall[part], speed.processor[part] = times * wall, times * processor
    return value


def _counted(speed: Speed, model: Any, video: Video) -> Speed:
    """The parts of a counting model, each alone, and a whole count. On a GPU a first count warms up."""
    counter = Counter(model)
    if speed.engine.device != "cpu":
        counter.count(video)

    def whole() -> tuple[EncodedVideo, CountResult]:
        encoded = counter.encode(video)
        return encoded, encoded.count()

    encoded, result = _time(speed, "end to end", whole)
    frames = _time(speed, "decoding", lambda: [frame.image for frame in _read(model, video)])
    if isinstance(encoded.encoding, MultiRateEncoding):
        encoding = MultiRateEncoding(model, lambda _: frames, start=0.0)
        views = list(encoded.encoding.windows)
        _time(speed, "encoder", lambda: encoding.encode(views))
        _time(speed, "decoder", lambda: encoding.evidence())
    else:
        _time(speed, "decoder", lambda: encoded.encoding.estimate())
    if isinstance(model, PaperWindowModel):
        images = torch.from_numpy(np.stack([model.spec.cut(frames[0])] * model.spec.window_frames))[None]
        batch = images.expand(model.batch, *images.shape[1:])
        sequences = encoded.encoding.sequences  # type: ignore[attr-defined]
        windows = sum(-(-sequence.cells // model.spec.cells) for sequence in sequences)
        _time(speed, "encoder", lambda: model.tokens(batch), times=windows / model.batch)
    return replace(speed, count=result.raw_count)


def _read(model: Any, video: Video) -> Iterable[Frame]:
    """Frames as the model reads them."""
    if isinstance(model, MultiRateModel):
        size = model.network.encoder.spec.size
        return video.frames(size=(size, size), rate=BASE_RATE)
    if isinstance(model, PaperWindowModel):
        size_ = model.spec.read_size(video.info.width, video.info.height)
        return video.frames(size=size_, every=model.spec.every)
    return video.frames(size=(SIDE, SIDE), rate=min(RATE, max(video.info.fps, 5.0)))


def _transformers(speed: Speed) -> Speed:
    """VideoMAE of the transformers library on one window of 64 raw frames at 30 per second, as long as that lasts."""
    from transformers import VideoMAEConfig, VideoMAEModel

    engine = speed.engine
    model: nn.Module = VideoMAEModel(VideoMAEConfig())  # type: ignore[no-untyped-call]
    model = model.eval().to(engine.device)
    frames = torch.randn(1, 16, 3, 224, 224, device=engine.device)
    low = torch.autocast(engine.device, torch.bfloat16) if engine.precision == "bf16" else nullcontext()
    with torch.inference_mode(), low:
        model(frames)
        _time(speed, "encoder", lambda: model(frames))
    return replace(speed, seconds=64 / 30)


@dataclass(frozen=True)
class Bench:
    """The rows, and what they were measured on; times in seconds."""

    machine: str
    gpu: str | None
    versions: str
    rounds: int
    rows: tuple[Speed, ...]


def bench(
    video: Path | None = None,
    *,
    device: str = "auto",
    quick: bool = False,
    rounds: int = 1,
) -> Bench:
    """Time every engine that runs here. video: default 720p30 that is drawn for it, a minute long, ten seconds when
    quick. device: "cpu", "cuda", or "auto" for what is here. rounds: how often all engines take turns; medians count.
    quick leaves out the paper's encoders, ONNX and the plainly written model."""
    with tempfile.TemporaryDirectory(prefix="escounts-bench-") as kept:  # shared machines have many users
        folder = Path(kept)
        long, brief = (video, video) if video else _footage(folder, quick=quick)
        engines = engines_here(device, quick=quick, exported=None if quick or device == "cuda" else exported(folder))
        turns: dict[Engine, list[Speed]] = {engine: [] for engine in engines}
        for turn in range(rounds):
            for index, engine in enumerate(engines):
                done = f"{turn * len(engines) + index}/{rounds * len(engines)}"
                print(f"{done}  {engine.model}, {engine.runs}", file=sys.stderr)
                turns[engine].append(alone(engine, brief if engine.model in RIVALS else long))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = f"escounts {version('escounts')}, PyTorch {torch.__version__}"
    return Bench(processor_name(), gpu, versions, rounds, tuple(median(speeds) for speeds in turns.values()))


def _footage(folder: Path, *, quick: bool) -> tuple[Path, Path]:
    """The videos that are drawn: for most engines, and for the paper's encoders."""
    short = segment(folder / "segment.mp4")
    long = short if quick else looped(short, folder / "minute.mp4", MINUTE)
    return long, segment(folder / f"{PAPER_SECONDS}-seconds.mp4", seconds=PAPER_SECONDS)


def engines_here(device: str = "auto", *, quick: bool = False, exported: str | None = None) -> list[Engine]:
    """What is timed on this machine. exported: the folder of the default model for ONNX Runtime."""
    if device not in ("auto", "cpu", "cuda"):
        raise EscountsError(f"device is {device!r}; it takes auto, cpu or cuda")
    default = catalogue.default_name()
    found = [Engine("decoding alone", runs=DECODING), Engine("spectral", runs=NUMPY)]
    if device != "cuda":
        chosen = counting_precision(torch.device("cpu"))  # what `count` would take here
        found += [Engine(default, precision=chosen)]
        if not quick:
            other = "bf16" if chosen == "float32" else "float32"
            found += [Engine(default, precision=other), Engine(default, runs=PLAIN)]
            found += [Engine(default, runs=ONNX, folder=exported)] if exported else []
            found += _rivals("cpu", "float32")
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        found += [Engine(default, "cuda", "bf16"), Engine(default, "cuda")]
        found += [] if quick else [Engine(default, "cuda", runs=PLAIN), *_rivals("cuda", "bf16")]
    return found


def _rivals(device: str, precision: str) -> list[Engine]:
    rivals = [Engine(name, device, precision) for name in RIVALS]
    if importlib.util.find_spec("transformers"):
        rivals.append(Engine("videomae-b", device, precision, TRANSFORMERS))
    return rivals


def exported(folder: Path) -> str | None:
    """The default model for ONNX Runtime, exported into the folder; None where the extra [onnx] is missing."""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime", "onnxscript"))):
        return None
    model = load(device="cpu").model
    if not isinstance(model, MultiRateModel):
        return None
    export_onnx(model, folder / "onnx")
    return str(folder / "onnx")


def alone(engine: Engine, video: Path) -> Speed:
    """One engine's Speed, measured in a process of its own."""
    try:
        return Speed(**{**in_child(__file__, json.dumps(asdict(engine)), video), "engine": engine})
    except RuntimeError as error:
        return Speed(engine, float("nan"), error=str(error))


def median(speeds: Sequence[Speed]) -> Speed:
    """The rounds of one engine as one: each part's median, the largest peak, the first error."""
    first = next((speed for speed in speeds if speed.error), speeds[0])
    wall = {part: statistics.median(speed.wall[part] for speed in speeds) for part in first.wall}
    processor = {part: statistics.median(speed.processor[part] for speed in speeds) for part in first.processor}
    peaks = [speed.peak_mb for speed in speeds if speed.peak_mb is not None]
    return replace(first, wall=wall, processor=processor, peak_mb=max(peaks, default=None))


def markdown(found: Bench, *, by_processor: bool = False) -> str:
    """The table in the form of the docs. by_processor: rates per second of processor (all cores together) instead of
    per second on the wall; for a machine that others use, too."""
    on_gpu = f", {found.gpu}" if found.gpu else ", no GPU"
    unit = "processor second (all cores together)" if by_processor else "second"
    turns = "one round" if found.rounds == 1 else f"medians of {found.rounds} rounds"
    about = (
        f"{found.machine}{on_gpu}; {found.versions}. Seconds of video per {unit}: more is faster; {turns}, each "
        "engine in a process of its own. Starting is not in the rates; the peak is the process's, or a GPU's."
    )
    headers = ("model", "device", "precision", "engine", *PARTS, "start s", "peak MB", "count")
    return f"{about}\n\n{table(headers, (cells_of(speed, by_processor=by_processor) for speed in found.rows))}"


def cells_of(speed: Speed, *, by_processor: bool = False) -> list[str]:
    """A row of the table."""
    engine = speed.engine
    name = engine.model if engine.runs == DECODING else f"`{engine.model}`"
    cells = [name, engine.device, "–" if engine.runs == DECODING else engine.precision, engine.runs]
    if speed.error:
        return [*cells, f"did not run: {speed.error}", *["–"] * (len(PARTS) + 2)]
    times = speed.processor if by_processor else speed.wall
    cells += [_figure(speed.seconds / times[part]) if times.get(part) else "–" for part in PARTS]
    known = speed.count is not None and engine.model not in RIVALS  # these have random weights
    cells.append("–" if speed.start is None else f"{speed.start:.1f}")
    cells.append("–" if speed.peak_mb is None else f"{speed.peak_mb:.0f}")
    return [*cells, f"{speed.count:.2f}" if known else "–"]


def _figure(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asdict(measure(Engine(**json.loads(sys.argv[2])), Path(sys.argv[3])))))
        return
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--video", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--by-processor", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = bench(options.video, device=options.device, quick=options.quick, rounds=options.rounds)
    print(json.dumps(asdict(found)) if options.json else markdown(found, by_processor=options.by_processor))


if __name__ == "__main__":
    main()
