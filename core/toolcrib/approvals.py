"""What somebody approved of a tool, and how the tool differs from it now. Pure.

An approval is one digest; what it was an approval of is remembered beside it, so that a change can be shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from toolcrib import digest
from toolcrib.resources.tools import MOST_APPROVED
from toolcrib.text import truncate
from toolcrib.wire.backends import ADDRESSES
from toolcrib.wire.publish import PublishedTool

_LARGE = "sha256"
"""Among the parts, which have names of our own: digests of those that are too large to be kept."""
_DIGESTS = "sourceDigests"
_MOST_SHOWN = 160
"""Characters of a value in one line of a difference."""
_DEEPEST = 64


def parts(tool: PublishedTool) -> dict[str, Any]:
    """Everything that the tool's two digests cover, by the names that manifests use."""
    backend = None
    if tool.backend is not None:
        backend = tool.backend.model_dump(mode="json", exclude=ADDRESSES, exclude_none=True)
    found = {
        "name": tool.name,
        "server": tool.server,
        "title": tool.title,
        "description": tool.description,
        "tags": list(tool.tags) or None,
        "examples": list(tool.examples) or None,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "returns": tool.returns,
        "annotations": dict(tool.annotations) or None,
        "sourceDigests": dict(tool.source_digests) or None,
        "replacedBy": tool.replaced_by,
        "message": tool.message,
        "scopes": sorted(tool.scopes),
        "scopeMatch": tool.scope_match.value,
        "backend": backend,
        "fallback": list(tool.fallback) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def remembered(tool: PublishedTool) -> str:
    """The same as JSON of at most `MOST_APPROVED` characters; the largest values give way to their digests."""
    kept, large = parts(tool), dict[str, str]()
    for key in sorted(kept, key=lambda k: -len(json.dumps(kept[k]))):
        text = json.dumps(kept | ({_LARGE: large} if large else {}), sort_keys=True)
        if len(text) <= MOST_APPROVED:
            return text
        large[key] = digest.sha256(kept.pop(key))
    return json.dumps(kept | {_LARGE: large}, sort_keys=True)


def recalled(text: str | None) -> dict[str, Any] | None:
    """What `remembered` wrote; None where nothing can be read."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _shallow(found) else None


def differences(before: Mapping[str, Any], tool: PublishedTool) -> list[str]:
    """A line for each place where a tool differs from what was approved, in ASCII: what hides is escaped."""
    found: list[str] = []
    for key, old, new, large in _changed_parts(before, tool):
        if large is not None and new is not None:
            found.append(f"{key}: changed; it was too large to be kept")
        else:
            found.extend(_lines(key, old, new))
    return found


def changes(before: Mapping[str, Any] | None, tool: PublishedTool) -> list[str]:
    """The same with every value whole: `- path: value` as approved, `+ path: value` as it is, both JSON in ASCII.

    Texts are compared by their lines. Without `before` everything that the tool is.
    """
    found: list[str] = []
    for key, old, new, large in _changed_parts(before or {}, tool):
        if large is not None:
            found.append(f"- {key}: too large to be kept, {_whole(large)}")
        found.extend(_changed(dict(_leaves(key, old)), dict(_leaves(key, new))))
    return found


def texts(path: str, before: str | None, now: str | None) -> list[str]:
    """The same of a text that stands beside the tool; None: it is not known, or there is none."""
    both = {name: {} if text is None else {path: text} for name, text in (("-", before), ("+", now))}
    return list(_changed(both["-"], both["+"]))


def _changed_parts(
    before: Mapping[str, Any], tool: PublishedTool
) -> Iterator[tuple[str, Any, Any, str | None]]:
    """Name, value before and now, and the digest of one that was too large to be kept, of each part that differs."""
    after, kept = parts(tool), before.get(_LARGE)
    large: Mapping[str, Any] = kept if isinstance(kept, dict) else {}
    for key in dict.fromkeys([*after, *before, *large]):
        old, new = before.get(key), after.get(key)
        if key == _LARGE:
            continue
        if key in large:
            if new is None or digest.sha256(new) != large[key]:
                yield key, None, new, str(large[key])
        elif not _same(old, new):
            yield key, old, new, None


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


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for path in [*new, *(p for p in old if p not in new)]:
        before, after = old.get(path), new.get(path)
        if (path in old) == (path in new) and _same(before, after):
            continue
        if isinstance(before, str) and isinstance(after, str):
            was, now = before.splitlines(keepends=True), after.splitlines(keepends=True)
            for kind, a, b, c, d in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
                if kind != "equal":
                    yield from (f"- {path}: {_whole(line)}" for line in was[a:b])
                    yield from (f"+ {path}: {_whole(line)}" for line in now[c:d])
            continue
        if path in old:
            yield f"- {path}: {_whole(before)}"
        if path in new:
            yield f"+ {path}: {_whole(after)}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every value below one, by its path; a list of plain values is one value."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            shown = key if key.isidentifier() and key.isascii() else _whole(key)
            yield from _leaves(f"{path}.{shown}", value[key])
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(f"{path}[{number}]", each)
    elif value is not None or "." in path:
        yield path, value


def _same(old: Any, new: Any) -> bool:
    """As digests tell values apart: true is not 1."""
    try:
        return digest.canonical(old) == digest.canonical(new)
    except ValueError:  # a status can hold what no tool can
        return False


def _whole(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shallow(value: Any) -> bool:
    """Whether walking it by recursion is safe: it may be a status that somebody else wrote."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return True
    return False


def _lines(path: str, old: Any, new: Any) -> Iterator[str]:
    if path == _DIGESTS:
        for key in sorted({*(old or {}), *(new or {})}):
            if (old or {}).get(key) != (new or {}).get(key):
                yield f"{path}.{_ascii(str(key))}: changed at the server; it is kept as a digest"
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            if not _same(old.get(key), new.get(key)):
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
