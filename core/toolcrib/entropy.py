"""Random bytes for ids that are made for every request, from the system, many at one time.

Each read of the system's gives up the interpreter's lock, which takes far longer than the read where another thread wants
it. Keys and secrets are made with `secrets`, not with this.
"""

from __future__ import annotations

import os
from collections import deque
from struct import Struct

SIZE = 16
"""Bytes of one piece."""
_TOGETHER = 256
_CUT = Struct(f"{SIZE}s" * _TOGETHER).unpack

_pieces: deque[bytes] = deque()
# a child has the parent's pieces, and would hand out the same
os.register_at_fork(after_in_child=_pieces.clear)


def piece() -> bytes:
    """16 random bytes that nobody else gets. May be called from any thread."""
    while True:
        try:
            return _pieces.popleft()
        except IndexError:
            _pieces.extend(_CUT(os.urandom(SIZE * _TOGETHER)))
