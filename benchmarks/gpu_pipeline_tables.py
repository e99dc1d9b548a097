"""The figures of gpu_pipeline.py as Markdown."""

from __future__ import annotations

from typing import Any


def table(found: dict[str, Any]) -> str:
    """All parts that were measured."""
    about = (
        f"{found['gpu'] or 'no GPU'}, {found['processor']}, PyTorch {found['torch']}, escounts {found['escounts']}"
    )
    lite = [_pipeline(found.get("pipeline", {})), _mixes(found.get("nvdec", {}))]
    parts = [*lite, _encoders(found), _bench(found.get("bench", {}))]
    errors = [f"`{part}` failed:\n\n{value['error']}" for part, value in found.items() if _failed(value)]
    return "\n\n".join([about + ".", *(part for part in parts if part), *errors])


def _failed(value: Any) -> bool:
    return isinstance(value, dict) and "error" in value


def _pipeline(flow: dict[str, Any]) -> str:
    names = {
        "readers_alone": "readers alone",
        "slow_together": "readers and counting, all processes started",
        "slow_from_nothing": "the same from nothing on, loading included",
        "slow_counting_alone": "counting alone, one process, images in memory",
        "fast_together": "fast motion: readers and counting, started",
        "fast_counting_alone": "fast motion: counting alone",
    }
    if not any(name in flow for name in names):
        return ""
    lines = [
        f"`lite`, {flow['videos']} videos, {flow['readers']} readers.",
        "",
        "| | × real time | readers busy | counters busy | GPU busy | cores busy |",
        "|---|---|---|---|---|---|",
    ]
    for name, text in names.items():
        if name in flow:
            row = flow[name]
            shares = [row.get(key) for key in ("readers_busy", "counters_busy")]
            cells = [f"{share:.0%}" if share is not None else "–" for share in shares]
            gpu, cores = row.get("gpu_utilisation"), row.get("cores_busy")
            cells += [f"{gpu:.0f} %" if gpu is not None else "–", f"{cores:.1f}" if cores is not None else "–"]
            lines.append(f"| {text} | {row['times_real_time']:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mixes(flow: dict[str, Any]) -> str:
    if not flow.get("mixes"):
        return ""
    lines = [
        "| `lite`: readers, with NVDEC, counters | × real time | without first and last fifth | readers busy "
        "| counters busy | engines | cores busy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in flow["mixes"]:
        engine = row["engine_utilisation"]
        cells = [f"{row['times_real_time']:.0f}", f"{row['steady_times_real_time'] or 0:.0f}"]
        cells += [f"{row['readers_busy']:.0%}", f"{row['counters_busy']:.0%}"]
        cells += [f"{engine:.0f} %" if engine is not None else "–", f"{row['cores_busy']:.1f}"]
        lines.append(f"| {', '.join(map(str, row['mix']))} | {' | '.join(cells)} |")
    if "clips" in flow:
        lines += ["", f"Clips with equal counts: {flow['clips']['equal']} of {flow['clips']['clips']}."]
    return "\n".join(lines)


def _encoders(found: dict[str, Any]) -> str:
    lines = [
        "| encoder | from | precision | batch | windows per second | peak MB | share of the rate |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found.get("vit", {}).get("rows", []):
        source = f"{row['frames']} decoded frames, to tokens in memory"
        lines.append(
            f"| `{row['encoder']}` | {source} | as counted | {row['batch']} | {row['windows_per_second']:.0f} "
            f"| {row.get('peak_mb', 0):.0f} | {row['share_of_rate']:.1%} |"
        )
    for row in found.get("encoders", {}).get("rows", []):
        lines.append(
            f"| `{row['encoder']}` | resident tensors | {row['precision']} | {row['batch']} "
            f"| {row['windows_per_second']:.0f} | {row['peak_memory_mb']:.0f} | {row['share_of_rate']:.1%} |"
        )
    for name, spent in found.get("encoders", {}).items():
        if "kernels" in name:
            top = "; ".join(f"{key} × {count}: {ms} ms" for key, count, ms in spent["top"][:8])
            lines += [
                "",
                f"{name}, batch {spent['batch']}: {spent['wall_ms']:.1f} ms ({spent['busy_ms']:.1f} busy). {top}",
            ]
    return "\n".join(lines) if len(lines) > 2 else ""


def _bench(found: dict[str, Any]) -> str:
    return "\n".join(found.get("rows", []))
