"""Text that is kept and seldom read: compressed where that makes it smaller, and read back either way."""

from __future__ import annotations

import zlib

_MARK = b"z"
"""Before the size and what was compressed. No JSON value begins with it."""
_HEAD = 1 + 4
_LEVEL = 1
"""Higher ones take up to twice the time and save 2 % of a schema."""


def condensed(text: bytes) -> bytes:
    """`text` as it is kept: what begins with `{` or `[`, or is empty."""
    packed = _MARK + len(text).to_bytes(4) + zlib.compress(text, _LEVEL)
    return packed if len(packed) < len(text) else text


def expanded(kept: bytes) -> bytes:
    """What `condensed` made it from; other text is returned as it is."""
    return zlib.decompress(kept[_HEAD:]) if kept[:1] == _MARK else kept


def size(kept: bytes) -> int:
    """The length of `expanded(kept)`, without reading it."""
    return int.from_bytes(kept[1:_HEAD]) if kept[:1] == _MARK else len(kept)
