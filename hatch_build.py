"""Builds the compiled kernels into the package; without a compiler the package is pure Python."""

import os
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno"]


class NativeHook(BuildHookInterface[Any]):
    """Compiles what is native in the package and tags the wheel with the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what can be built to the wheel, and say why the rest is left out."""
        if self.target_name != "wheel":
            return
        built = []
        for name, build in (("proximity", self._threshold), ("deployment", self._kernels)):
            try:
                built += build()
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", None) or error
                self.app.display_warning(f"sparsepath without its {name} kernels: {reason}")
        if not built:
            return
        build_data["artifacts"] += [str(path.relative_to(self.root)) for path in built]
        build_data["pure_python"] = False
        # The libraries are called through ctypes, so they fit every Python of this platform.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _threshold(self) -> list[Path]:
        source = Path(self.root, "sparsepath", "native.c")
        target = source.with_name("_native.so")
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise OSError("no C compiler was found")
        command = [*compiler.split(), *FLAGS, str(source), "-o", str(target), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return [target]

    def _kernels(self) -> list[Path]:
        script = Path(self.root, "sparsepath", "deploy", "native", "compile.py")
        built: list[Path] = runpy.run_path(str(script))["build_libraries"]()
        return built
