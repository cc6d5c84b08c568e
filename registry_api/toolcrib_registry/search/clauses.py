"""A long request cut into the things it asks for.

`Find flights to Oslo, then book a hotel and send me the receipt` asks for three tools; one vector of all of it lies
between them and near none. Each clause is ranked as a request of its own beside the whole.

Cut where a sentence or a line ends, before `then` and the like, and before `and` with a verb that asks for something.
Finer cuts (at every `and`, at commas) were no better on the development data, and each clause costs an encoding.
"""

from __future__ import annotations

import re

MOST = 6
"""Clauses of one request; what follows is part of the last."""
_LEAST_WORDS = 3
_SHORT = 12
"""Requests of up to this many words are one thing."""

_ASKING = (
    "add|analyze|book|calculate|check|compare|compute|convert|create|delete|determine|download|explain|export|fetch|"
    "find|generate|get|give|identify|list|look up|notify|plot|provide|read|recommend|record|remove|reserve|retrieve|"
    "save|schedule|search|send|set|share|show|store|suggest|summarize|tell|track|translate|update|upload|verify|write"
)
# every pattern looks at one space at most: runs of spaces are gone before
_BREAK = re.compile(
    r"(?<=[.!?;])[\"')\]]? (?=[\"'(\[]?[A-Z0-9])"
    r"|(?<=[。！？；])"
    r"|,? (?:and then|then|after that|afterwards|and also) "
    rf"|,? and (?=(?:(?:also|please|finally) )?(?:{_ASKING})\b)"
)
_COURTESY = re.compile(r"(?:many )?thank(?:s| you)\b.{0,40}", re.IGNORECASE)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


def clauses(text: str) -> list[str]:
    """The clauses of `text` in order; the whole as the only one where it asks for one thing."""
    if _words(text) <= _SHORT:
        return [text]
    found: list[str] = []
    for line in text.splitlines():
        for piece in _BREAK.split(" ".join(line.split())):
            piece = piece.strip(' ,.;:!?"。！？；')
            if not piece or _COURTESY.fullmatch(piece):
                continue
            if found and _words(piece) < _LEAST_WORDS:
                found[-1] = f"{found[-1]} {piece}"
            else:
                found.append(piece)
    if len(found) > MOST:
        found[MOST - 1 :] = [" ".join(found[MOST - 1 :])]
    return found if len(found) > 1 else [text]


def _words(text: str) -> int:
    """Words, where two characters of a script without spaces count as one."""
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2
