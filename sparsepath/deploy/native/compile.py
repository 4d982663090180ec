"""Compiles the kernels: one library per instruction set, from the same sources.

    python sparsepath/deploy/native/compile.py            # in place, for work on the sources

The build hook and the tests use the same functions; only the standard library is needed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# Names a folder of libraries built earlier: one of the very same sources is taken, not built again.
EARLIER_VARIABLE = "SPARSEPATH_EARLIER_KERNELS"
FLAGS = [
    "-std=c++17", "-O3", "-fPIC", "-pthread", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi",
]  # fmt: skip
LINK = ["-shared", "-pthread", "-Wl,-Bsymbolic"]
X86 = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
    "portable": [],
}


def compiler() -> list[str] | None:
    """The C++ compiler's command, or None."""
    named = os.environ.get("CXX")
    found = named or shutil.which("c++") or shutil.which("g++")
    return found.split() if found else None


def instruction_sets() -> dict[str, list[str]]:
    """The flags of each library that is built on this machine."""
    return X86 if platform.machine() in ("x86_64", "AMD64") else {"portable": []}


def sources() -> list[Path]:
    """All C++ sources."""
    return sorted(HERE.glob("*.cpp"))


def build(
    command: list[str], targets: dict[Path, list[str]], *, extra: list[Path] | None = None
) -> None:
    """Compile all sources into each target with its flags."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs, links = [], []
        for number, (target, flags) in enumerate(targets.items()):
            objects = []
            compile_one = [*command, *FLAGS, *flags, "-I", str(HERE), "-c"]
            for source in [*sources(), *(extra or [])]:
                objects.append(str(Path(scratch, f"{number}-{source.stem}.o")))
                jobs.append([*compile_one, str(source), "-o", objects[-1]])
            shared = LINK if target.suffix == ".so" else ["-pthread"]
            links.append([*command, *flags, *shared, *objects, "-o", str(target)])
        # The longest first: it is the one of many templates.
        jobs.sort(key=lambda job: "multiply" not in job[-3])
        for stage in (jobs, links):
            list(pool.map(_run, stage))


def build_libraries() -> list[Path]:
    """Build every library of this machine into the package and name them."""
    command = compiler()
    if command is None:
        raise OSError("no C++ compiler was found")
    earlier = os.environ.get(EARLIER_VARIABLE)
    libraries, missing = [], {}
    for isa, flags in instruction_sets().items():
        library = HERE.parent / f"_kernels_{isa}.so"
        libraries.append(library)
        made_of = _made_of(command, flags)
        if earlier and _is_made_of(Path(earlier, library.name), made_of):
            shutil.copyfile(Path(earlier, library.name), library)
        else:
            missing[library] = [*flags, f"-Wl,--build-id=0x{made_of}"]
    build(command, missing)
    return libraries


def _made_of(command: list[str], flags: list[str]) -> str:
    """All that a library is made of, as one number: sources, options and compiler."""
    version = subprocess.run([*command, "--version"], check=True, capture_output=True).stdout
    digest = hashlib.sha256(repr((command, version, FLAGS, flags, LINK)).encode())
    for path in sorted(HERE.glob("*.*")):
        digest.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _is_made_of(library: Path, made_of: str) -> bool:
    """Whether a library says so in its build id."""
    return library.is_file() and bytes.fromhex(made_of) in library.read_bytes()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    try:
        print(*build_libraries(), sep="\n")
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
