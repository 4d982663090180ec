"""Settings that must stand before torch loads."""

import os

# Some CPUs advertise AMX and then die on it; one thread per process keeps xdist's workers apart.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("OMP_NUM_THREADS", "1")
