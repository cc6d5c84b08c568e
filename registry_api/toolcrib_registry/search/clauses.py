"""A long request cut into the things it asks for.

`Find flights to Oslo, then book a hotel and send me the receipt` asks for three tools; one vector of all of it lies
between them and near none. Each clause is ranked as a request of its own beside the whole.
"""

from __future__ import annotations

import re

MOST = 6
"""Clauses of one request; what follows is part of the last."""
_LEAST_WORDS = 3
_SHORT = 12
"""Requests of up to this many words are one thing."""

_BREAK = re.compile(
    r"(?<=[.!?;])\s+|\n+|,?\s+(?:and then|then|after that|afterwards|additionally|also|finally|next|as well as)\b,?\s*"
    r"|,\s+and\s+|\s+and\s+(?=(?:also|then|please|give|get|find|show|list|fetch|provide|retrieve|check|create|send|"
    r"calculate|search|tell|suggest|recommend|generate|update|delete|add|convert|analyze|save|compute|determine)\b)",
    re.IGNORECASE,
)


def clauses(text: str) -> list[str]:
    """The clauses of `text` in order; the whole as the only one where it asks for one thing."""
    if len(text.split()) <= _SHORT:
        return [text]
    # a run of spaces costs the pattern its square
    folded = "\n".join(" ".join(line.split()) for line in text.splitlines())
    found: list[str] = []
    for piece in _BREAK.split(folded):
        piece = piece.strip(" ,.;:!?\t\n")
        if not piece:
            continue
        if len(piece.split()) < _LEAST_WORDS and found:
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    if len(found) > MOST:
        found[MOST - 1 :] = [" ".join(found[MOST - 1 :])]
    return found if len(found) > 1 else [text]
