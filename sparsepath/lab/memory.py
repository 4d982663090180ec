"""Keeps what a training step frees for the next, where the C library would hand it back."""

import ctypes

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Let this process keep the memory it frees; False where the C library cannot be told to.

    Each step of training makes and frees maps of many megabytes. By default glibc asks the system
    for each and hands it back, so that the system blanks every page again in every step.
    """
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    return bool(tell(M_TRIM_THRESHOLD, NEVER) and tell(M_MMAP_MAX, 0))
