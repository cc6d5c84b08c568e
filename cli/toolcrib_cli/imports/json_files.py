"""JSON as people write it in configuration files: with comments and with commas before a closing bracket. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

MAX_BYTES = 1 << 20
"""Of a file; a client's configuration has a few thousand."""
_PIECE = re.compile(
    r"""
      "(?:[^"\\]++|\\.)*+"?                           # a string
    | (?P<blank> //[^\n]* | /\*.*?\*/ | ,(?=\s*+[}\]]) )
    | /\*.*                                           # a comment without an end
    """,
    re.DOTALL | re.VERBOSE,
)
"""What has no end is a piece too: to look for its end again from each of its characters takes hours for a MiB."""


def read(text: str) -> Any:
    """The value that `text` holds.

    Raises:
        ValueError: it is not JSON, or names a key twice; the message says where.
    """
    try:
        plain = _PIECE.sub(_kept, text)
        # a comment may stand between a comma and its bracket
        return json.loads(_PIECE.sub(_kept, plain), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _kept(piece: re.Match[str]) -> str:
    if piece["blank"] is None:
        return piece[0]
    # lines are counted in messages
    return re.sub(r"[^\n]", " ", piece[0])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"key {twice!r} is given twice in one object: remove one")
    return found
