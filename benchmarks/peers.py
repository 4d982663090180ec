"""The public dense runtimes that a network is compared with, each as a function of images."""

import copy
import io
from collections.abc import Callable
from importlib import metadata

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture import capture
from sparsepath.deploy.dense import in_onnxruntime
from sparsepath.deploy.fold import folded
from sparsepath.deploy.onnx_graph import onnx_model

Run = Callable[[Tensor], object]


def eager(model: nn.Module, images: Tensor, threads: int) -> Run:
    """torch as it is, with pixels before channels."""
    own = _turned(model)

    @torch.inference_mode()
    def run(images: Tensor) -> object:
        return own(images.contiguous(memory_format=torch.channels_last))

    return run


def inductor(model: nn.Module, images: Tensor, threads: int) -> Run:
    """torch.compile with frozen weights."""
    import torch._inductor.config as settings

    settings.freezing = True
    torch._dynamo.reset()
    own = torch.compile(_turned(model))

    @torch.no_grad()
    def run(images: Tensor) -> object:
        return own(images.contiguous(memory_format=torch.channels_last))

    return run


def onnxruntime(model: nn.Module, images: Tensor, threads: int) -> Run:
    """onnxruntime on the folded graph."""
    run = in_onnxruntime(folded(capture(model)), [images], threads)
    if run is None:
        raise ImportError("onnxruntime is not installed")
    return run


def openvino(model: nn.Module, images: Tensor, threads: int) -> Run:
    """OpenVINO on the same graph, float32."""
    import openvino as ov

    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    network = core.read_model(io.BytesIO(onnx_model(folded(capture(model)), [4])))
    network.reshape([len(images), *images.shape[1:]])
    own = core.compile_model(network, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    return lambda given: own([given.numpy()])


def deepsparse(model: nn.Module, images: Tensor, threads: int) -> Run:
    """DeepSparse, whose last wheel is for Python up to 3.11."""
    import tempfile

    from deepsparse import compile_model

    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(onnx_model(folded(capture(model)), [4]))
        file.flush()
        own = compile_model(
            file.name, batch_size=len(images), num_cores=threads, input_shapes=[[*images.shape]]
        )
    return lambda given: own.run([given.numpy()])


PEERS: dict[str, Callable[[nn.Module, Tensor, int], Run]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": eager,
    "torch.compile": inductor,
    "deepsparse": deepsparse,
}


def versions() -> dict[str, str]:
    """The release of every peer that is installed."""
    found = {}
    for name in ("torch", "onnxruntime", "openvino", "deepsparse"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _turned(model: nn.Module) -> nn.Module:
    own = copy.deepcopy(model)
    own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return own
