"""Returns the memory of finished lists to the system, where the C library is glibc."""

from __future__ import annotations

import ctypes

LIMIT = 128 << 10
"""Bytes that a heap may keep free at its end, and from which a block gets a mapping of its own: glibc's first values."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def give_back() -> bool:
    """Fix both at `LIMIT`, before the first list; False where the C library has no such settings.

    Left alone, glibc raises them, to 64 and 32 MiB, as it frees large blocks. Each thread has a heap, and each heap then
    keeps what a page of a list took.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(_TRIM_THRESHOLD, LIMIT) and mallopt(_MMAP_THRESHOLD, LIMIT))
