"""Returns the memory of finished lists to the system, where the C library is glibc."""

from __future__ import annotations

import ctypes

LARGE = 128 << 10
"""Bytes from which a block gets its own mapping, which goes back to the system when the block is freed."""
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


def give_back() -> bool:
    """Fix that size at `LARGE`, before the first list; False where the C library has no such setting.

    128 KiB is also glibc's first value. But it raises the value, up to 32 MiB, when it frees a larger block. The pages of
    a list then come from heaps, one a thread. Records that stay lie among them, so that the heaps cannot shrink.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGE))
