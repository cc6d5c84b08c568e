"""What makes two tasks alike, and two views equal. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from toolcrib_runner.discovery import DiscoveredTool

_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_WORD = re.compile(r"[^\W_]+")


def task_signature(task: str) -> str:
    """sha256 (hex) of the task's words: lower case, sorted, each once, without numbers and quoted text."""
    words = {w for w in _WORD.findall(_QUOTED.sub(" ", task).lower()) if not any(c.isdigit() for c in w)}
    return hashlib.sha256(" ".join(sorted(words)).encode("utf-8", "replace")).hexdigest()


def view_digest(tools: Mapping[str, DiscoveredTool]) -> str:
    """sha256 (hex) over everything that the listing says of the tools, whatever their order."""
    made = hashlib.sha256()
    for name in sorted(tools):
        made.update(repr(tools[name]).encode("utf-8", "backslashreplace"))
        made.update(b"\n")
    return made.hexdigest()
