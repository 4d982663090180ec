"""What the CPU runtime should reach, and what the records of each machine say of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cpu_inference import KEY

from sparsepath.report.layout import Table
from sparsepath.storage import read_json

# Those of which the least is asked.
LOW = ("low-rank-cnn", "low-rank-nin", "resnet-56", "vgg-16-bn")
LAYER_AIMS = {
    "ratio": {"0.34": 3.0, "0.5": 4.0, "0.8": 6.0, "0.9": 8.0},
    "over_own_dense": {"0.34": 1.3, "0.5": 1.6, "0.8": 2.4, "0.9": 3.3},
}
"""What each 3 x 3 layer should reach over onnxruntime, and over our own dense kernel."""
NETWORK_AIMS = (
    (3.2, "cnn", "paper", False, 64),
    (2.0, "cnn", "paper", False, 1),
    (1.8, "nin", "paper", False, 64),
    (2.4, "nin", ".5", True, 64),
    (4.5, "nin", ".9", True, 64),
    *((1.2, name, ".5", False, 64) for name in LOW),
)
"""What networks should reach over onnxruntime with one thread."""
AVX2_SHARE = 0.8
"""How much of that our AVX2 kernels should reach over torch held to AVX2."""
LEAST = 0.95
"""What no median ratio to the best public runtime should be below."""
MOST_BYTES = 4.3
"""How many times the kept float32 values the packed weights of a layer by F(4x4) may take."""


def aimed(value: float, aim: float) -> str:
    """A ratio, its aim, and whether it is missed."""
    return f"{value:.2f} of {aim:g}{'' if value >= aim else ' (missed)'}"


def layer_aims(folder: Path) -> dict[str, str]:
    """By layer and kind of ratio, what was reached of what was aimed at."""
    found = {}
    layers = read_json(folder / "layers.json")["layers"]
    for name, layer in layers.items():
        if name.endswith("3x3, batch 64"):
            for kind, aims in LAYER_AIMS.items():
                against = "onnxruntime" if kind == "ratio" else "our own dense kernel"
                shares = [
                    aimed(layer["zeros"][share][kind]["median"], aim) for share, aim in aims.items()
                ]
                found[f"{name} over {against}, 34 / 50 / 80 / 90 %"] = " / ".join(shares)
    most = max(
        figures["bytes_per_kept_value"]
        for layer in layers.values()
        for figures in layer["zeros"].values()
        if figures["choice"]["method"] == "winograd4"
    )
    missed = " (missed)" if most > MOST_BYTES else ""
    found["packed weights by F(4x4), most bytes of a kept value"] = (
        f"{most:.2f} of at most {MOST_BYTES:g}{missed}"
    )
    return found


def network_aims(folder: Path) -> dict[str, str]:
    """By case, what was reached of what was aimed at."""
    rows = read_json(folder / "cpu_inference.json")["rows"]
    found = {}
    for aim, *case in NETWORK_AIMS:
        network, zero, pointwise, batch = case
        title = f"{network}{', 1 x 1 too' if pointwise else ''}, {zero} zero, batch {batch}"
        for row in rows:
            if _case(row) == (*case, 1):
                median = row["over"]["onnxruntime"]["median"]
                found[f"{title}, over onnxruntime"] = aimed(median, aim)
    for row in read_json(folder / "cpu_inference_avx2.json")["rows"]:
        for aim, *case in NETWORK_AIMS:
            if _case(row) == (*case, 1):
                median = row["native only over"]["torch"]["median"]
                title = f"{row['network']}, {row['zero']} zero, AVX2, over torch held to AVX2"
                found[title] = aimed(median, round(AVX2_SHARE * aim, 2))
    least = min(row["over the best peer"]["median"] for row in rows)
    found["least of all networks over the best public runtime"] = aimed(least, LEAST)
    return found


def _case(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in KEY)


def aims(folders: Sequence[Path]) -> str:
    """All aims, machine by machine."""
    found = [{**layer_aims(folder), **network_aims(folder)} for folder in folders]
    titles = list(dict.fromkeys(title for each in found for title in each))
    rows = [[title, *(each.get(title, "") for each in found)] for title in titles]
    return Table("", ["aim", *(folder.name for folder in folders)], rows).markdown()
