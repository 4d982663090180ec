"""What times depend on: the processor, what may be used of it, and the versions of what ran."""

import hashlib
import os
import platform
from pathlib import Path

import torch

from sparsepath import __version__
from sparsepath.deploy.running import kernels

FORMAT = "sparsepath tuning 1"
# They forbid torch instructions that the processor has.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")


def stamp() -> dict[str, str]:
    """All that must be as it was for a time to hold still, by name."""
    return {
        "format": FORMAT,
        "sparsepath": __version__,
        "torch": torch.__version__,
        "onnxruntime": _onnxruntime(),
        "limits": _limits(),
        "kernels": _kernels(),
        "machine": machine(),
    }


def machine() -> str:
    """The processor, as far as times depend on it.

    A cloud may call several generations by one name: on x86 family and model tell them apart.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    said = [(key.strip(), value.strip()) for key, _, value in (x.partition(":") for x in lines)]
    first = dict(reversed(said))  # of the first core
    name = first.get("model name", platform.processor())
    if "cpu family" in first and "model" in first:
        name += f" (family {first['cpu family']}, model {first['model']})"
    return f"{platform.machine()} {name}, {os.cpu_count()} cores"


def _kernels() -> str:
    """Which build of the kernels the times are of."""
    if not kernels.available():
        return "none"
    engine = kernels.Engine()
    built = Path(str(engine.library._name)).read_bytes()
    return f"{engine.isa} {hashlib.sha256(built).hexdigest()[:12]}"


def _onnxruntime() -> str:
    """Which onnxruntime the times are of."""
    try:
        import onnxruntime
    except Exception:  # an install that is broken is none
        return "none"
    return str(onnxruntime.__version__)


def _limits() -> str:
    """What the user forbids torch."""
    return " ".join(f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name))
