"""Writes benchmarks/results/tables.md: what the CPU records of all machines say, as tables.

    python benchmarks/tables.py

A folder of `benchmarks/results/` that holds `layers.json` and `cpu_inference*.json` is a machine;
`zoo.json` says what becomes of networks of others.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aims import LOW, aims

from sparsepath.report.layout import Table
from sparsepath.storage import read_json, write_text

RESULTS = Path(__file__).parent / "results"
WRITTEN = RESULTS / "tables.md"
NETWORKS = ("cnn", "nin", *LOW)
ZEROS = ("0", ".34", ".5", ".8", ".9", "paper", "trained")
KINDS = {
    "cpu_inference": "Whole networks",
    "cpu_inference_avx2": "Whole networks, ours and torch's held to AVX2",
    "cpu_inference_deepsparse": "Whole networks beside DeepSparse",
}
"""The records of whole networks, by the names of their files."""


def spread(ratio: Mapping[str, float]) -> str:
    """A median with its quartiles."""
    return f"{ratio['median']:.2f} ({ratio['quartile_1']:.2f} to {ratio['quartile_3']:.2f})"


def layers(record: Mapping[str, Any], ratio: str) -> str:
    """One of the ratios of single layers, at every share of zero kernels."""
    measured = record["layers"]
    shares = list(next(iter(measured.values()))["zeros"])
    rows = [
        [name, *(spread(layer["zeros"][share][ratio]) for share in shares)]
        for name, layer in measured.items()
    ]
    return Table(
        "", ["layer", *(f"{100 * float(share):.0f} %" for share in shares)], rows
    ).markdown()


def networks(record: Mapping[str, Any]) -> str:
    """Every case of whole networks: over each peer, and over our own dense kernels."""
    cases = sorted(record["rows"], key=_place)
    peers = list(dict.fromkeys(peer for case in cases for peer in case["over"]))
    held = record["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    # Where the tuner took onnxruntime, that could not be held to it.
    over = "native only over" if held else "over"
    rows = [
        [
            case["network"] + (", 1 x 1 too" if case["pointwise too"] else ""),
            case["zero"] if case["zero"].isalpha() else f"{100 * float(case['zero']):.0f} %",
            str(case["batch"]),
            str(case["threads"]),
            *(spread(case[over][peer]) if peer in case[over] else "" for peer in peers),
            spread(case["over our own dense kernels"]),
            str(case["rounds"]),
            case["runner"],
        ]
        for case in cases
    ]
    titles = ["network", "zero kernels", "batch", "threads", *(f"over {peer}" for peer in peers)]
    return Table("", [*titles, "over our own dense kernels", "rounds", "runs"], rows).markdown()


def nodes(case: Mapping[str, Any]) -> str:
    """Where the time of one case goes when our kernels alone run it, and how near the peak."""
    table = case["layers"]
    whole = sum(entry["us an image"] for entry in table)
    rows = [
        [
            entry["layer"],
            entry["method"],
            f"{100 * entry['zero']:.0f} %",
            f"{entry['us an image']:.1f}",
            f"{100 * entry['us an image'] / whole:.0f} %",
            f"{entry['GFLOP/s, zeros included']:.0f}",
            f"{100 * entry['of peak']:.0f} %",
        ]
        for entry in table
    ]
    titles = ["layer", "method", "zero", "us an image", "of the time", "GFLOP/s", "of peak"]
    return Table("", titles, rows).markdown()


STEPS = {"compact": "compacted", "file": "file", "runtime": "compiled", "onnx": "ONNX"}
"""What `zoo.py` tries with a network of others, and how its table calls it."""


def zoo(record: Mapping[str, Any]) -> str:
    """How far each network of others comes, and by how much its results differ."""
    rows = [
        [
            name.partition(":")[2],
            name.partition(":")[0],
            f"{row['parameters'] / 1e6:.1f}",
            f"{row['parameters left'] / 1e6:.1f}" if "parameters left" in row else "refused",
            str(row["nodes"]),
            str(sum(row["in torch"].values())),
            *(f"{row[x]:.0e}" if isinstance(row[x], float) else "refused" for x in STEPS),
        ]
        for name, row in record["rows"].items()
    ]
    titles = ["network", "of", "million weights", "left", "operations", "in torch", *STEPS.values()]
    return Table("", titles, rows).markdown()


def _place(case: Mapping[str, Any]) -> tuple[int, int, bool, int, int]:
    network, zero = NETWORKS.index(case["network"]), ZEROS.index(case["zero"])
    return case["threads"], network, case["pointwise too"], -case["batch"], zero


def machine(folder: Path) -> Iterator[str]:
    """All that was measured on one machine."""
    about = read_json(folder / "cpu_inference.json")
    yield f"## {folder.name}: {about['machine']}"
    yield described(about)
    single = read_json(folder / "layers.json")
    for ratio, title in {
        "ratio": "over onnxruntime, without our changes of layout",
        "ratio_with_conversion": "over onnxruntime, with our changes of layout",
        "over_own_dense": "over our own dense kernel",
    }.items():
        yield from (f"### Single layers, {title}", layers(single, ratio))
    for name, title in KINDS.items():
        path = folder / f"{name}.json"
        if path.exists():
            yield from (f"### {title}", networks(read_json(path)))
    for case in sorted(about["rows"], key=_place):
        if (case["zero"], case["batch"], case["threads"]) == ("paper", 64, 1):
            yield f"### Where the time goes: {case['network']} at the paper's counts, batch 64"
            yield (
                "GFLOP/s count zeros, and all that Winograd saves; of the peak, a product of "
                f"1024 x 1024 matrices at {case['sgemm GFLOP/s']} GFLOP/s, only what is multiplied."
            )
            yield nodes(case)


def described(about: Mapping[str, Any]) -> str:
    """The machine and the releases."""
    releases = [f"{name} {version}" for name, version in about["versions"].items()]
    held = about["ONEDNN_MAX_CPU_ISA"]
    known = [about["processor"]] if "processor" in about else []
    limits = [f"ONEDNN_MAX_CPU_ISA={held}"] if held else []
    parts = [
        *known,
        about["system"],
        f"{about['memory GiB']} GiB",
        *about["caches"],
        f"our kernels {about['instruction set']}",
        *releases,
        *limits,
    ]
    return "; ".join(parts) + "."


def tables() -> str:
    """The whole page."""
    parts = [
        "# What the CPU records say",
        "Made by `benchmarks/tables.py`: how many times faster, medians (quartiles) of "
        "interleaved rounds. [README](../README.md) says how, and what it means.",
    ]
    folders = sorted(path.parent for path in RESULTS.glob("*/cpu_inference.json"))
    parts += ["## What was aimed at", aims(folders)]
    for folder in folders:
        parts += machine(folder)
    found = read_json(RESULTS / "zoo.json")
    libraries = " and ".join(" ".join(each) for each in found["libraries"].items())
    parts += [
        f"## Networks of {libraries}",
        "By `benchmarks/zoo.py`: random weights, of every ungrouped convolution half of the "
        "kernels zero and a quarter of the filters dead, images of 64 x 64, or "
        "224 x 224 where a network takes no other. The last four columns "
        "are the largest differences from the model's own results, relative to their largest.",
        zoo(found),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write_text(WRITTEN, tables())
    print(WRITTEN)
