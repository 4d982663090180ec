"""One network in every runtime that is here, or why it is not in one of them."""

import copy
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.running.dense import in_onnxruntime
from sparsepath.deploy.running.runtime import compile

Run = Callable[[Tensor], Any]
NAMES = ("sparsepath", "torch", "torch.compile", "onnxruntime")
log = logging.getLogger("sparsepath")


def runtimes(
    model: nn.Module,
    images: Tensor,
    *,
    names: Collection[str] = NAMES,
    threads: int = 1,
    tune: bool = True,
) -> Mapping[str, Run | str]:
    """The model, in eval mode, as a function in each runtime, or in a word why there is none.

    `images` is what it will be given, at any size of batch. With `tune` our own runtime measures
    which way is the fastest.
    """
    made: Mapping[str, Callable[[], Run | str]] = {
        "sparsepath": lambda: compile(model, images, threads=threads, tune=tune),
        "torch": lambda: eager(model),
        "torch.compile": lambda: inductor(model, images),
        "onnxruntime": lambda: _onnxruntime(model, images, threads),
    }
    return {name: make() for name, make in made.items() if name in names}


@contextmanager
def threads_of_torch(threads: int) -> Iterator[None]:
    """Torch with so many threads; as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def eager(model: nn.Module) -> Run:
    """torch as it is, with pixels before channels, as oneDNN likes them."""
    own = _turned(model)

    @torch.inference_mode()
    def run(images: Tensor) -> Any:
        return own(_pixels_first(images))

    return run


def inductor(model: nn.Module, images: Tensor) -> Run | str:
    """torch.compile with frozen weights, compiled for each size of batch that it meets."""
    own = torch.compile(_turned(model), dynamic=False)
    compiled: set[torch.Size] = set()

    @torch.no_grad()
    def run(images: Tensor) -> Any:
        if images.shape in compiled:
            return own(_pixels_first(images))
        with torch._inductor.config.patch(freezing=True):
            result = own(_pixels_first(images))
        compiled.add(images.shape)
        return result

    try:
        run(images)
    except Exception as error:  # no compiler, or whatever its own have against the model
        log.debug("torch.compile does not work here: %s", error)
        kind = type(getattr(error, "inner_exception", error)).__name__
        return "no C++ compiler" if kind == "InvalidCxxCompiler" else f"fails ({kind})"
    return run


def _onnxruntime(model: nn.Module, images: Tensor, threads: int) -> Run | str:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        return f"no {error.name} here"
    return in_onnxruntime(folded(capture(model)), [images], threads) or "cannot run it"


def _turned(model: nn.Module) -> nn.Module:
    own = copy.deepcopy(model)
    own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return own


def _pixels_first(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images
