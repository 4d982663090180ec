"""Making a sparse network smaller, keeping it in a file, and running it fast on the CPU."""

from sparsepath.deploy.artifact import Artifact, load, save
from sparsepath.deploy.compact import Compacted, compact
from sparsepath.deploy.export import Exported, export
from sparsepath.deploy.quantise import int8_onnx, int8_weights
from sparsepath.deploy.runtime import Runtime, compile
from sparsepath.deploy.share import share

__all__ = [
    "Artifact",
    "Compacted",
    "Exported",
    "Runtime",
    "compact",
    "compile",
    "export",
    "int8_onnx",
    "int8_weights",
    "load",
    "save",
    "share",
]
