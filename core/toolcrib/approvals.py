"""What somebody approved of a tool, and how the tool differs from it now. Pure.

An approval is one digest; what it was an approval of is remembered beside it, so that a change can be shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib import digest
from toolcrib.resources.tools import MOST_APPROVED
from toolcrib.text import truncate
from toolcrib.wire.publish import PublishedTool

_ROUTE = "route"
_MOST_SHOWN = 160
"""Characters of a value in one line of a difference."""


def parts(tool: PublishedTool) -> dict[str, Any]:
    """Everything that the tool's two digests cover, by the names that manifests use."""
    backend = None
    if tool.backend is not None:
        backend = tool.backend.model_dump(mode="json", exclude={"cluster_ip"}, exclude_none=True)
    found = {
        "name": tool.name,
        "server": tool.server,
        "title": tool.title,
        "description": tool.description,
        "tags": list(tool.tags),
        "examples": list(tool.examples),
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "returns": tool.returns,
        "annotations": dict(tool.annotations),
        "replacedBy": tool.replaced_by,
        "message": tool.message,
        "scopes": sorted(tool.scopes),
        "scopeMatch": tool.scope_match.value,
        "backend": backend,
    }
    return {key: value for key, value in found.items() if value not in (None, [], {}, "")}


def remembered(tool: PublishedTool) -> str:
    """The same as JSON of at most `MOST_APPROVED` characters; the largest values give way to their digests."""
    kept = parts(tool)
    for key in sorted(kept, key=lambda k: -len(json.dumps(kept[k]))):
        text = json.dumps(kept, sort_keys=True)
        if len(text) <= MOST_APPROVED:
            return text
        kept[key] = {"sha256": digest.sha256(kept[key])}
    return json.dumps(kept, sort_keys=True)


def recalled(text: str | None) -> dict[str, Any] | None:
    """What `remembered` wrote; None where nothing can be read."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def differences(before: Mapping[str, Any], tool: PublishedTool) -> list[str]:
    """A line for each place where a tool differs from what was approved, in ASCII: what hides is escaped."""
    after = parts(tool)
    found: list[str] = []
    for key in [*after, *(k for k in before if k not in after)]:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and old.keys() == {"sha256"} and new is not None:
            if old["sha256"] != digest.sha256(new):
                found.append(f"{key}: changed; it was too large to be kept")
        elif old != new:
            found.extend(_lines(key, old, new))
    return found


def summary(lines: list[str], limit: int) -> str:
    """As many whole lines as fit, and how many more there are."""
    shown, left = "", len(lines)
    for line in lines:
        more = f" ({left - 1} more)" if left > 1 else ""
        if len(shown) + len(line) + 2 + len(more) > limit:
            break
        shown, left = f"{shown}; {line}" if shown else line, left - 1
    if not shown:
        return truncate(lines[0], limit) if lines else ""
    return f"{shown} ({left} more)" if left else shown


def _lines(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            if old.get(key) != new.get(key):
                yield from _lines(f"{path}.{_ascii(str(key))}", old.get(key), new.get(key))
    elif old is None:
        yield f"{path} added: {_shown(new)}"
    elif new is None:
        yield f"{path} removed: {_shown(old)}"
    elif isinstance(old, str) and isinstance(new, str):
        first, second = _unlike(old, new)
        yield f"{path}: {first} -> {second}"
    else:
        yield f"{path}: {_shown(old)} -> {_shown(new)}"


def _unlike(old: str, new: str) -> tuple[str, str]:
    """Two texts without most of what they begin with alike."""
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    cut = max(0, same - 24)
    mark = "..." if cut else ""
    return mark + _shown(old[cut:]), mark + _shown(new[cut:])


def _shown(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _ascii(text: str) -> str:
    return truncate(json.dumps(text)[1:-1], 64)
