"""Running a sparse network fast on the CPU."""

from sparsepath.deploy.runtime import Runtime, compile

__all__ = ["Runtime", "compile"]
