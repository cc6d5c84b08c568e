"""Held event loops in the logs of a run, without those that are known: `tests/contract/held_loops.txt`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LIST = Path(__file__).parents[1] / "contract" / "held_loops.txt"
SAID = "event loop was held for"
"""Part of the line that `toolcrib.process.watchdog` logs."""


def known(text: str | None = None) -> dict[str, str]:
    """Function → why it may hold a loop; `text` instead of the file's."""
    found = {}
    for line in (LIST.read_text() if text is None else text).splitlines():
        if line.strip() and not line.startswith("#"):
            function, why = line.split(maxsplit=1)
            found[function] = why
    return found


def unknown(lines: Iterable[str | dict[str, Any]], but: Iterable[str] | None = None) -> list[str]:
    """The log lines, parsed or not, that tell of a held loop and name none of the functions `but` (None: known)."""
    spared = list(known() if but is None else but)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return [text for text in texts if SAID in text and not any(_names(text, name) for name in spared)]


def _names(text: str, function: str) -> bool:
    """Whether a line has the function as a whole name, quoted in either form of the log."""
    return f'"{function}"' in text or f"'{function}'" in text


def unknown_of(metrics: str, lines: Iterable[str], but: Iterable[str] | None = None) -> list[str]:
    """`unknown` of the log of one process, and what its metrics count beyond that: logs are cut, counters are not."""
    spared = list(known() if but is None else but)
    told = [line for line in lines if SAID in line]
    found = unknown(told, spared)
    by_place = Counter(
        match[1]
        for line in told
        if (match := re.search(r"event loop was held for \d+ ms by (\S+?)[\s\"]", line))
    )
    for place, count in re.findall(
        r'^toolcrib_loop_held_total\{place="([^"]+)"\} (\S+)$', metrics, re.MULTILINE
    ):
        if place not in spared and float(count) > by_place[place]:
            found.append(
                f"{place}: {float(count) - by_place[place]:.0f} times that the log no longer tells of"
            )
    return found


def check(process: str, lines: str | Iterable[str | dict[str, Any]]) -> None:
    """Raise AssertionError where a loop was held by anything that is not known."""
    found = unknown(lines.splitlines() if isinstance(lines, str) else lines)
    assert not found, f"{process}: an event loop was held:\n" + "\n".join(found)


def check_folder(folder: Path) -> None:
    """The same of every log in a folder."""
    for log in sorted(folder.glob("*.log")):
        check(log.stem, log.read_text(errors="replace"))
