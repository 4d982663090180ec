"""Settings that must stand before torch loads, and no search for garbage in what is loaded."""

import gc
import os

# Some CPUs advertise AMX and then die on it; one thread per process keeps xdist's workers apart.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no search for garbage need go through it again."""
    gc.collect()
    gc.freeze()
