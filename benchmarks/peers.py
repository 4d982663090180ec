"""The public dense runtimes that a network is compared with, each as a function of images."""

import io
from collections.abc import Callable
from importlib import metadata

from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.onnx_graph import onnx_for
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.measuring.runtimes import Run, eager, inductor, runtimes


def torch_eager(model: nn.Module, images: Tensor, threads: int) -> Run:
    """torch as it is, with pixels before channels."""
    return eager(model)


def torch_compiled(model: nn.Module, images: Tensor, threads: int) -> Run:
    """torch.compile with frozen weights."""
    return _here(inductor(model, images))


def onnxruntime(model: nn.Module, images: Tensor, threads: int) -> Run:
    """onnxruntime on the folded graph."""
    (run,) = runtimes(model, images, names=["onnxruntime"], threads=threads).values()
    return _here(run)


def _here(run: Run | str) -> Run:
    if isinstance(run, str):
        raise ImportError(run)
    return run


def openvino(model: nn.Module, images: Tensor, threads: int) -> Run:
    """OpenVINO on the same graph, float32."""
    import openvino as ov

    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    network = core.read_model(io.BytesIO(onnx_for(folded(capture(model)), [images])))
    network.reshape([len(images), *images.shape[1:]])
    own = core.compile_model(network, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    return lambda given: own([given.numpy()])


def deepsparse(model: nn.Module, images: Tensor, threads: int) -> Run:
    """DeepSparse, whose last wheel is for Python up to 3.11."""
    import tempfile

    from deepsparse import compile_model

    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(onnx_for(folded(capture(model)), [images]))
        file.flush()
        own = compile_model(
            file.name, batch_size=len(images), num_cores=threads, input_shapes=[[*images.shape]]
        )
    return lambda given: own.run([given.numpy()])


PEERS: dict[str, Callable[[nn.Module, Tensor, int], Run]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch_eager,
    "torch.compile": torch_compiled,
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
