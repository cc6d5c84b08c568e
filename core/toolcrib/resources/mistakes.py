"""What is wrong with a manifest, in words: a model's errors as findings, each with what to do."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from toolcrib import wording
from toolcrib.errors import Finding
from toolcrib.resources import addresses, agents, backends, bindings, canaries, durations, servers, tools

WORDS = {
    **wording.FORMS,
    addresses.URL: "an http:// or https:// address, as in https://api.example.com/v1, without user, query or fragment",
    addresses.PATH: "a path that begins with '/', of printable ASCII characters",
    backends.HEADER: "1 to 64 letters, digits or '-'",
    backends.OAUTH_SCOPE: "scopes separated by single spaces, as in read write, without quotes and backslashes",
    backends.RESOURCE: "an absolute URI without a fragment, as in https://api.example.com",
    backends.SECRET_KEY: "1 to 253 letters, digits, '_', '.' or '-'",
    tools.DIGEST: "sha256: and 64 digits of 0-9 and a-f; copy it from status.approvalDigest",
    backends.AUDIENCE: "one or more printable ASCII characters without spaces",
    servers.WORD: "text without NUL characters",
    servers.VARIABLE: "letters, digits and '_', not beginning with a digit",
    servers.GLOB: "1 to 128 characters without control characters",
    agents.MODE: "static, dynamic, cached, batched, hybrid or auto",
    agents.TOOL_ID: "the id of a tool, as namespace/name",
    canaries.OUTCOME: "TooFewCalls, Worse, Better or NoDifference",
    bindings.OPERATOR: "In, NotIn, Exists or DoesNotExist",
    durations.DURATION: "a duration of one number and one unit (ms, s, m, h), as in 10s",
    durations.INSTANT: "a time with a zone (RFC 3339), as in 2027-01-31T12:00:00Z",
}
"""What a text must be, by the pattern that says so."""
_TYPES = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "missing": "required, but missing",
}


def findings(errors: Iterable[Any], model: type[BaseModel]) -> Iterator[Finding]:
    """Pydantic's errors about a manifest of `model`, in the manifest's own spelling."""
    told = list(errors)
    # of a list whose entries are all refused none is left: it is not empty
    within = {e["loc"][:depth] for e in told for depth in range(len(e["loc"]))}
    for error in told:
        if not (error["type"] == "too_short" and error["loc"] in within):
            yield _finding(error, model)


def close(word: str, known: Iterable[str]) -> str:
    """Which of the known words may be meant, as a hint; else all of them."""
    among = list(known)
    if (meant := nearest(word, among)) is not None:
        return f"did you mean {meant}?"
    return f"known: {', '.join(among)}" if among else ""


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Which of the known words may be meant, if one is as like as `least` (0 to 1)."""
    return next(iter(near(word, known, least, most=1)), None)


def near(word: str, known: Iterable[str], least: float = 0.6, *, most: int = 3) -> list[str]:
    """The known words that are as like as `least` (0 to 1), the likest first, `most` at most."""
    by_lower = {k.lower(): k for k in known}
    return [by_lower[found] for found in difflib.get_close_matches(word.lower(), by_lower, most, least)]


def _finding(error: Any, model: type[BaseModel]) -> Finding:
    path = _path(error["loc"])
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "extra_forbidden":
        return Finding(path, "unknown field", _elsewhere(model, error["loc"]) or _near(model, error["loc"]))
    if kind in _TYPES:
        return Finding(path, _TYPES[kind])
    if kind in ("literal_error", "enum"):
        return Finding(path, f"must be {context.get('expected')}")
    if kind == "too_short" and context.get("actual_length") == 0:
        what = "an empty mapping" if context.get("field_type") == "Dictionary" else "an empty list"
        return Finding(
            path,
            f'{what} is refused: it could be read as "everything"',
            "name at least one entry, or leave the field out where it is optional",
        )
    return Finding(path, wording.said(error, WORDS))


def _near(model: type[BaseModel], loc: Sequence[Any]) -> str:
    return close(str(loc[-1]), _fields(model, loc[:-1]))


def _elsewhere(model: type[BaseModel], loc: Sequence[Any]) -> str:
    """That the field stands at the wrong depth: it is one of an object around its place, or of one beside it."""
    *place, name = loc
    around = [place[:depth] for depth in range(len(place) - 1, 0, -1)]
    beside = [[*place, inner] for inner in _fields(model, place)]
    for other in (*around, *beside):
        if name in _fields(model, other):
            return f"it is a field of {_path(other)}"
    return ""


def _path(loc: Iterable[Any]) -> str:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _fields(model: type[BaseModel], path: Iterable[Any]) -> list[str]:
    """The fields of what stands at `path`; none where anything may stand there."""
    found: list[type[BaseModel]] = [model]
    for part in path:
        if not isinstance(part, int):
            found = [m for each in found for m in _models(_annotation(each, part))]
    return [field.alias or name for each in found for name, field in each.model_fields.items()]


def _annotation(model: type[BaseModel], alias: str) -> Any:
    return next(
        (field.annotation for name, field in model.model_fields.items() if alias in (field.alias, name)), None
    )


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation allows, itself or inside lists, options and unions."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from _models(inner)
