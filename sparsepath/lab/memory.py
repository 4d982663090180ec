"""Keeps what a training step frees for the next, where the C library would hand it back."""

import ctypes

# Of glibc's malloc.h; as its manual says, a threshold of -1 turns trimming off.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


def keep_freed() -> bool:
    """Let this process, for the rest of its life, keep the memory that it frees.

    Each step of training makes and frees maps of many megabytes. Of the large ones glibc asks the
    system for each and hands it back, and it hands back what lies free at the end of the rest, so
    that the system blanks most pages again in every step. False where the C library cannot be told.
    What is measured afterwards in this process is no longer what another would measure.
    """
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    return bool(tell(M_TRIM_THRESHOLD, NEVER) and tell(M_MMAP_MAX, 0))
