"""Names and scopes of tools: from operationId, tags and paths."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from toolcrib import names

MAX_NAME = 48
_FOREIGN = re.compile(r"[^A-Za-z0-9.-]+")
_MAX_PART = 40
_DIGITS = 6


def tool_names(operations: Sequence[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """A name for each (method, path, operation): its operationId in the characters that a name may have.

    Without one, method and path. Where two meet (upper and lower case are the same), where a name is too long or
    reserved, six hex digits of sha256(METHOD path) follow; 24 where even those are the same.
    """
    slugs = [_slug(method, path, operation) for method, path, operation in operations]
    met = Counter(slug.lower() for slug in slugs)
    made = [
        slug
        if met[slug.lower()] == 1 and len(slug) <= MAX_NAME and slug not in names.RESERVED_TOOL_NAMES
        else _marked(slug, method, path, _DIGITS)
        for slug, (method, path, _) in zip(slugs, operations, strict=True)
    ]
    # of some thousand operations of one name, two may have the same six digits
    again = Counter(name.lower() for name in made)
    return [
        name if again[name.lower()] == 1 else _marked(slug, method, path, 4 * _DIGITS)
        for name, slug, (method, path, _) in zip(made, slugs, operations, strict=True)
    ]


def _slug(method: str, path: str, operation: dict[str, Any]) -> str:
    given = operation.get("operationId")
    wanted = given if isinstance(given, str) and _FOREIGN.sub("", given[:500]) else f"{method}{path}"
    return _FOREIGN.sub("_", wanted[:500]).strip("_") or method


def _marked(slug: str, method: str, path: str, digits: int) -> str:
    code = hashlib.sha256(f"{method.upper()} {path}".encode(errors="replace")).hexdigest()[:digits]
    return f"{slug[: MAX_NAME - 1 - digits]}-{code}"


def topic(path: str, operation: dict[str, Any], shared: int) -> str:
    """What a scope is about: the first tag, else the first segment of the path that not all paths share.

    Args:
        path: as the document has it.
        operation: with its tags.
        shared: how many segments all paths begin with.
    """
    tags = operation.get("tags")
    if isinstance(tags, list) and tags and isinstance(tags[0], str) and (tag := _part(tags[0])):
        return tag
    segments = [s for s in path.partition("?")[0].split("/") if s]
    own = [s for s in segments[shared:] or segments if not s.startswith("{")]
    return _part(own[0]) if own and _part(own[0]) else "api"


def shared_segments(paths: Sequence[str]) -> int:
    """How many leading segments all paths have in common (as `v1`), where some path goes on after them."""
    split = [[s for s in path.split("/") if s] for path in paths]
    if len(split) < 2:
        return 0
    count = 0
    for column in zip(*split, strict=False):
        if len(set(column)) > 1 or column[0].startswith("{"):
            break
        count += 1
    return count


def scope(prefix: str, about: str, method: str) -> str:
    """`prefix:about:read` for GET, `:write` else."""
    return f"{prefix}:{about}:{'read' if method == 'get' else 'write'}"


def _part(text: str) -> str:
    kept = re.sub(r"[^a-z0-9_.-]+", "-", text.lower())
    return re.sub(r"^[^a-z0-9]+", "", kept)[:_MAX_PART].rstrip("-._")
