"""The machine that results are of, as far as a reader must know it to judge them."""

import os
import platform
from pathlib import Path
from typing import Any

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def described(caches: Path = CACHES) -> dict[str, Any]:
    """The system, the processor's kind, the memory and what caches a core sees."""
    return {
        "processor": _processor(),
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        "memory GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "caches": [_cache(folder) for folder in sorted(caches.glob("index*"))],
    }


def _processor() -> str:
    """What tells processors of one name apart, where Linux says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    said = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    names = ("vendor_id", "cpu family", "model", "stepping")
    return ", ".join(f"{name} {said[name]}" for name in names if name in said)


def _cache(folder: Path) -> str:
    level, kind, size, sharers = (
        (folder / name).read_text(encoding="utf-8").strip()
        for name in ("level", "type", "size", "shared_cpu_list")
    )
    return f"L{level} {kind.lower()} {size}, shared by CPUs {sharers}"
