"""Making a sparse network smaller, keeping it in a file, and running it fast on the CPU."""

from sparsepath.deploy.bits.quantise import int8_onnx, int8_weights
from sparsepath.deploy.bits.share import share
from sparsepath.deploy.files.artifact import Artifact, load, save
from sparsepath.deploy.files.export import Exported, export
from sparsepath.deploy.running.runtime import Runtime, compile
from sparsepath.deploy.shrinking.compact import Compacted, compact

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
