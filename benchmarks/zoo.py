"""How far networks of torchvision and timm come here: captured, cut, saved, compiled, exported.

    pip install torchvision timm
    python benchmarks/zoo.py --out benchmarks/results/zoo.json [timm:NAME torchvision:NAME ...]

Weights are random, the statistics of norms too; of every ungrouped convolution half of the kernels
are zero and a quarter of the filters dead. Every result is compared with the model's own, on images
of another size of batch too. A record goes on: what is in it already is not done again.
"""

import argparse
import importlib.metadata
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from machine import described
from torch import Tensor, nn

from sparsepath import deploy
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.apart import difference
from sparsepath.deploy.graph.fold import without_dead_code
from sparsepath.errors import BadInput
from sparsepath.lab.folders import circumstances
from sparsepath.storage import read_json, write_json

TORCHVISION = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "lraspp_mobilenet_v3_large", "mnasnet0_5", "mobilenet_v2"),
    *("mobilenet_v3_small", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d"),
    *("shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vgg11_bn"),
)
TIMM = (
    *("convmixer_768_32", "convnextv2_atto", "cs3darknet_s", "cspdarknet53", "cspresnet50"),
    *("dla34", "dpn48b", "edgenext_x_small", "edgenext_xx_small", "efficientformer_l1"),
    *("efficientvit_b0", "levit_128s"),
    *("ese_vovnet19b_dw", "fasternet_t0", "fastvit_t8", "fbnetc_100", "fbnetv3_b", "gernet_s"),
    *("ghostnet_050", "ghostnetv2_100", "hardcorenas_a", "hgnet_tiny", "hgnetv2_b0"),
    *("hrnet_w18_small", "inception_next_atto", "lcnet_050", "lcnetv2_base"),
    *("legacy_seresnet18", "mambaout_femto", "mixnet_s", "mobilenetv1_100"),
    *("mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small_050"),
    *("mobilenetv4_hybrid_medium", "mobileone_s0", "mobilevit_xxs", "mobilevitv2_050"),
    *("nf_regnet_b0", "nfnet_l0", "poolformer_s12", "regnetx_002", "repghostnet_050"),
    *("repvgg_a0", "repvit_m0_9", "res2net50_14w_8s", "resnest14d", "resnetv2_50"),
    *("rexnet_100", "selecsls42", "semnasnet_050", "seresnet18", "shvit_s1", "skresnet18"),
    *("spnasnet_100", "starnet_s1", "swiftformer_xs", "tf_efficientnet_lite0"),
    *("tf_mobilenetv3_small_minimal_100", "tinynet_e", "tresnet_m", "xception41p"),
)
NAMES = (*(f"torchvision:{name}" for name in TORCHVISION), *(f"timm:{name}" for name in TIMM))
SIDE = 64
OTHERS = {"timm:efficientformer_l1": 224, "timm:levit_128s": 224}
"""The sides of images where a network takes no other."""


def made(name: str) -> nn.Module:
    """The network of that name, pruned at random, in eval mode."""
    home, _, own = name.partition(":")
    torch.manual_seed(0)
    if home == "timm":
        model: nn.Module = import_module("timm").create_model(own, pretrained=False)
    else:
        get_model = import_module("torchvision.models").get_model
        headless = (
            {"weights_backbone": None} if own.startswith(("lraspp", "fcn", "deeplab")) else {}
        )
        lone = {"aux_logits": False, "init_weights": False} if own == "googlenet" else {}
        model = get_model(own, weights=None, **headless, **lone)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.running_mean.uniform_(-0.2, 0.2)  # type: ignore[union-attr]
                layer.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
            elif isinstance(layer, nn.Conv2d) and layer.groups == 1:
                norms = layer.weight.flatten(2).norm(dim=2)
                layer.weight[norms < norms.median()] = 0
                layer.weight[: len(norms) // 4] = 0
    return model.eval()


def tried(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """What became of a model: by step the relative difference, or a sentence."""
    graph = without_dead_code(capture(model, example=[images]))
    found: dict[str, Any] = {
        "parameters": sum(x.numel() for x in model.parameters()),
        "nodes": len(graph.nodes),
        "in torch": dict(Counter(node.call.why for node in graph if node.call is not None)),
    }
    small: nn.Module | None = None

    def cut() -> nn.Module:
        nonlocal small
        small = deploy.compact(model, images).model
        found["parameters left"] = sum(x.numel() for x in small.parameters())
        return small

    def kept(of: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def again() -> nn.Module:
            with tempfile.TemporaryDirectory() as folder:
                deploy.save(of(), Path(folder, "net.sparsepath"), example=images)
                return deploy.load(Path(folder, "net.sparsepath")).model

        return again

    steps: dict[str, Callable[[], Any]] = {
        "compact": cut,
        "file": kept(lambda: model if small is None else small),
        "runtime": lambda: deploy.compile(model, images, tune=False),
    }
    for step, make in steps.items():
        try:
            found[step] = apart(model, make(), images)
        except BadInput as error:
            found[step] = str(error)
    with tempfile.TemporaryDirectory() as folder:
        try:
            found["onnx"] = deploy.export(model, images, Path(folder, "net.onnx")).difference
        except BadInput as error:
            found["onnx"] = str(error)
    return found


@torch.no_grad()
def apart(model: nn.Module, other: Callable[..., Any], images: Tensor) -> float:
    """max |difference| / max |output| on these images and on one more."""
    batches = (images, torch.cat((images, images[:1])))
    pairs = [difference(model(batch), other(batch)) for batch in batches]
    return max(far / (largest or 1.0) for far, largest in pairs)


def main() -> None:
    """Go through all names that have no row yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows: dict[str, Any] = read_json(given.out)["rows"] if given.out.exists() else {}
    about = {
        **circumstances(torch.device("cpu")),
        "machine described": described(),
        "libraries": {name: importlib.metadata.version(name) for name in ("torchvision", "timm")},
        "images": [2, 3, SIDE, SIDE],
    }
    for name in (name for name in given.names if name not in rows):
        side = OTHERS.get(name, SIDE)
        images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
        rows[name] = tried(made(name), images)
        print(name, rows[name], flush=True)
        write_json(given.out, {**about, "rows": {key: rows[key] for key in sorted(rows)}})


if __name__ == "__main__":
    main()
