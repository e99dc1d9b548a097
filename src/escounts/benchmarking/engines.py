"""One engine timed on one video: reading, encoder, decoder and all of it end to end.

An engine is a model, on a device, in a precision, run by something. It is timed in a process of its own
(`python -m escounts.benchmarking.engines`), so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from escounts.benchmarking.measuring import decode, peak_megabytes, timed
from escounts.counter import Counter, EncodedVideo
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.paper_windows import PaperWindowModel
from escounts.counting.spectral import RATE, SIDE, Spectral
from escounts.counting.views import BASE_RATE
from escounts.errors import EscountsError, ModelError
from escounts.models import catalogue
from escounts.models.building import OnnxDecoder, OnnxEncoder, RunGraph, build_model
from escounts.models.onnx_export import DecoderGraph, EncoderGraph
from escounts.nn.decoder import PAPER
from escounts.nn.device import bf16_speedup
from escounts.nn.encoders.registry import ENCODERS, build_encoder
from escounts.nn.network import Network, NetworkConfig
from escounts.results import CountResult
from escounts.video.files import Frame, Video

T = TypeVar("T")

PYTORCH, PLAIN, ONNX, TRANSFORMERS, NUMPY, DECODING = (
    *("PyTorch", "PyTorch, written plainly", "ONNX Runtime", "transformers", "NumPy", "PyAV"),
)


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
    from transformers import VideoMAEConfig, VideoMAEModel  # noqa: PLC0415 - a rival; nothing else needs it

    engine = speed.engine
    model: nn.Module = VideoMAEModel(VideoMAEConfig())  # type: ignore[no-untyped-call]
    model = model.eval().to(engine.device)
    frames = torch.randn(1, 16, 3, 224, 224, device=engine.device)
    low = torch.autocast(engine.device, torch.bfloat16) if engine.precision == "bf16" else nullcontext()
    with torch.inference_mode(), low:
        model(frames)
        _time(speed, "encoder", lambda: model(frames))
    return replace(speed, seconds=64 / 30)


def main() -> None:
    """In the child: `python -m escounts.benchmarking.engines ENGINE VIDEO`, an Engine as JSON; prints a Speed."""
    engine, path = Engine(**json.loads(sys.argv[1])), Path(sys.argv[2])
    print(json.dumps(asdict(measure(engine, path))))


if __name__ == "__main__":
    main()
