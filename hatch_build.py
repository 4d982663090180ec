"""Builds the compiled kernel into the package; without a C compiler the package is pure Python."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno"]


class NativeHook(BuildHookInterface[Any]):
    """Compiles sparsepath/native.c next to itself and tags the wheel with the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the kernel to the wheel, or say why it is left out."""
        if self.target_name != "wheel":
            return
        source = Path(self.root, "sparsepath", "native.c")
        target = source.with_name("_native.so")
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        try:
            if compiler is None:
                raise OSError("no C compiler was found")
            command = [*compiler.split(), *FLAGS, str(source), "-o", str(target), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(f"sparsepath without its compiled kernel: {reason}")
            return
        build_data["artifacts"].append("sparsepath/_native.so")
        build_data["pure_python"] = False
        # The library is called through ctypes, so it fits every Python of this platform.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
