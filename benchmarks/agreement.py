"""One count however it is computed: threads, precision and device, encode() + count() against one go.

    python benchmarks/agreement.py --clips DIR [--against FILE.json]
    python benchmarks/agreement.py --clips DIR --device cuda --out FILE.json     (on a machine with a GPU)

Counts every clip of DIR/dev.csv, zero-shot and with its exemplar, with two threads in float32 on the CPU, and
compares with the precision that this processor chooses, with one thread, with one go instead of encode() + count()
(one exemplar), and with what another device said of the same clips. Prints a table and writes it to
benchmarks/results/.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from labelled import LabelledSet, read_sets
from report import arguments, markdown, replace_section, write_json

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.nn.device import counting_precision

Counts = dict[str, float]
"""By clip and way of asking."""
NEAR = "within max(0.1, 1 %)"
TESTS: tuple[Callable[[float, float], bool], ...] = (
    lambda a, b: abs(a - b) <= max(0.1, 0.01 * a),
    lambda a, b: round(a) == round(b),
)


def main() -> None:
    parser = arguments(__doc__, clips=True, model="lite")
    parser.add_argument("--device", default="cpu", help="count on it and write the counts to --out, no more")
    parser.add_argument("--against", type=Path, help="counts of another device, written with --device and --out")
    parser.add_argument("--limit", type=int, help="only the first clips, for a quick look")
    parser.add_argument("--out", type=Path, help="JSON file of all counts")
    options = parser.parse_args()
    clips = read_sets(options.clips / "dev.csv", options.clips)[: options.limit]
    counter = escounts.load(options.model, device=options.device)
    if options.device == "cpu":
        ways = on_the_cpu(counter, clips)
    else:
        ways = {f"{options.device}, bf16": encoded(counter, clips)}
    if options.against:
        ways |= json.loads(options.against.read_text())
    if options.out:
        write_json(options.out, ways)
    if len(ways) > 1:
        text = table(options.model, ways, len(clips))
        print(text)
        if options.limit is None:
            replace_section("agreement", text)


def on_the_cpu(counter: escounts.Counter, clips: list[LabelledSet]) -> dict[str, Counts]:
    """In float32 with two threads, in what the processor chooses with two and with one, and in one go."""
    model = counter.model
    assert isinstance(model, MultiRateModel)
    chosen = counting_precision(model.device)
    ways = {}
    for threads, precision in dict.fromkeys([(2, "float32"), (2, chosen), (1, chosen)]):
        torch.set_num_threads(threads)
        model.precision = precision
        ways[f"{'two threads' if threads == 2 else 'one thread'}, {precision}"] = encoded(counter, clips)
    torch.set_num_threads(2)
    at_once = {
        f"{clip.name} one exemplar": counter.count(clip.path, exemplars=[clip.exemplar]).raw_count for clip in clips
    }
    return ways | {f"one go instead of encode() + count(), {chosen}": at_once}


def encoded(counter: escounts.Counter, clips: list[LabelledSet]) -> Counts:
    """Every clip encoded once and counted twice."""
    counts: Counts = {}
    for clip in clips:
        encoding = counter.encode(clip.path)
        counts[f"{clip.name} zero-shot"] = encoding.count().raw_count
        counts[f"{clip.name} one exemplar"] = encoding.count(exemplars=[clip.exemplar]).raw_count
    return counts


def table(model: str, ways: dict[str, Counts], clips: int) -> str:
    """How the other ways compare with the first."""
    (name, first), *others = ways.items()
    rows = []
    for other, counts in others:
        cells = []
        for asked in ("zero-shot", "one exemplar"):
            pairs = [(first[key], value) for key, value in counts.items() if key.endswith(asked)]
            cells += [f"{sum(test(*pair) for pair in pairs)} of {len(pairs)}" if pairs else "–" for test in TESTS]
        worst = max(counts, key=lambda key: abs(first[key] - counts[key]))
        apart = abs(first[worst] - counts[worst])
        rows.append([other, *cells, f"{apart:.3g} ({first[worst]:.2f}, {counts[worst]:.2f}: {worst})"])
    same = ("near", "same rounded count")
    headers = ("", *(f"{asked}: {what}" for asked in ("zero-shot", "one exemplar") for what in same), "most apart")
    about = f"`python benchmarks/agreement.py` on {clips} clips; against {name}. Near: {NEAR}."
    return f"## One count, however it is computed (`{model}`)\n\n{about}\n\n{markdown(headers, rows)}"


if __name__ == "__main__":
    main()
