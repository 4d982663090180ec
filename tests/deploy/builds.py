"""Builds of the native sources that tests share, each made once until its sources change.

python tests/deploy/builds.py            # all that this machine can run, before any test asks
"""

import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "embedded"
NATIVE = ROOT / "sparsepath" / "deploy" / "native"
PARTS = Path(__file__).with_name("embedded_parts.cpp")
KERNELS = Path(__file__).with_name("kernels_test.cpp")
COMPILE = runpy.run_path(str(NATIVE / "compile.py"))
CROSS = shutil.which("aarch64-linux-gnu-g++")
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
# Builds outlive a session: nobody waits a minute for what has not changed.
KEPT = ROOT / ".pytest_cache" / "embedded builds"
# All that differs from the documented build; the tests of x86 measure nothing and should be quick.
BUILDS = {
    "sanitized": {"CXXFLAGS": f"-O0 {SANITIZERS}", "ISAS": "portable"},
    "usual": {"CXXFLAGS": "-O1"},
    # As documented: another processor's code is looked at as it will be used.
    "aarch64": {"CXXFLAGS": "", "LDFLAGS": "-static", "CXX": CROSS},
}
# The same sources with other loads and stores: their addresses are what is left to look at.
ADDRESSES = ["-fsanitize=address", "-O0"]


def built(name: str) -> Path:
    """The folder of a build, spaces in its name and its sources'; whoever comes first makes it.

    A build is one of BUILDS, or the kernels of an instruction set under the addresses' sanitizer.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    folder, made_of = KEPT / f"the {name} build", KEPT / f"{name}.sha256"
    with (KEPT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_of.exists() or made_of.read_text() != _sources(name):
            made_of.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            (_build if name in BUILDS else _build_set)(name, folder)
            made_of.write_text(_sources(name))
    return folder


def _sources(name: str) -> str:
    """All that a build is made of, as one number."""
    own = [Path(__file__), FOLDER / "build", PARTS, KERNELS]
    files = [*own, *FOLDER.glob("*.*"), *NATIVE.glob("*.*")]
    version = subprocess.run([*_compiler(name), "--version"], capture_output=True, text=True)
    flags = [(key, os.environ.get(key)) for key in ("CXXFLAGS", "LDFLAGS", "ISAS")]
    content = repr((name, flags, version.stdout)).encode()
    content += b"".join(str(path).encode() + path.read_bytes() for path in sorted(files))
    return hashlib.sha256(content).hexdigest()


def _compiler(name: str) -> list[str]:
    return (BUILDS.get(name, {}).get("CXX") or os.environ.get("CXX", "c++")).split()


def _build(name: str, folder: Path) -> None:
    sources = KEPT / "the sources"
    if not sources.is_symlink():
        sources.symlink_to(ROOT)
    done([sources / FOLDER.name / "build", folder], {**os.environ, "JOBS": "2", **BUILDS[name]})
    options = ["-std=c++17", *BUILDS[name]["CXXFLAGS"].split()]
    ends = ["-pthread", *BUILDS[name].get("LDFLAGS", "").split(), "-o"]
    if name == "sanitized":
        library = folder / "libsparsepath_infer.a"
        done([*_compiler(name), *options, f"-I{FOLDER}", PARTS, library, *ends, folder / "parts"])
    if name != "usual":
        objects = {path.name: path for path in (folder / "objects").glob("portable-*.o")}
        del objects["portable-kernels_table.o"]  # the C++ program's own
        begin = [*_compiler(name), *options, "-O1", f"-I{NATIVE}", KERNELS]
        done([*begin, *objects.values(), *ends, folder / "kernels"])


def _build_set(isa: str, folder: Path) -> None:
    folder.mkdir()
    flags = [*COMPILE["instruction_sets"]()[isa], *ADDRESSES]
    try:
        COMPILE["build"](COMPILE["compiler"](), {folder / "kernels": flags}, extra=[KERNELS])
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr) from error


def done(command: list[str | Path], environment: dict[str, str] | None = None) -> None:
    """Run a build, which must succeed."""
    given = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert given.returncode == 0, given.stdout + given.stderr


def runs_here(flags: list[str]) -> bool:
    """Whether this processor says that it has all that these options of a compiler ask for."""
    said = Path("/proc/cpuinfo").read_text().split()
    return all(flag.removeprefix("-m") in said for flag in flags)


if __name__ == "__main__":
    best = next(isa for isa, flags in COMPILE["instruction_sets"]().items() if runs_here(flags))
    for name in ("sanitized", "usual", best, "aarch64"):
        if name != "portable" and (name != "aarch64" or CROSS):
            built(name)
