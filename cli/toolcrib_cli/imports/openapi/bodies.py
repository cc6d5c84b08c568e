"""A request's body: how it is encoded, and which arguments it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from toolcrib.resources.placing import BodyKind
from toolcrib_cli.imports.openapi.documents import Document, LeftOutError, listed, mapped

_FORM = "application/x-www-form-urlencoded"
_MAX_DEPTH = 16
_MAX_PARTS = 1_000
"""Schemas that one body is put together from: where each refers to the next twice, sixteen of them are 65,536."""
Schema = dict[str, Any]


@dataclass(slots=True)
class Body:
    """What a request carries beside its parameters.

    Attributes:
        kind: how it is encoded; NONE: there is none.
        properties: by name, as the document has them.
        required: names that must be given.
        choices: names of which one list at least must be given.
        open: whether other names may be given; a schema: what they must be.
        example: an example of the whole body.
    """

    kind: BodyKind = BodyKind.NONE
    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    choices: list[list[str]] = field(default_factory=list)
    open: bool | Schema = True
    example: Any = None


def of_operation(document: Document, operation: dict[str, Any]) -> Body:
    """The body of an operation.

    Raises:
        LeftOutError: of a media type that no tool sends, or not an object.
    """
    if operation.get("requestBody") is None:
        return Body()
    request = document.resolved(operation["requestBody"])
    content = mapped(request.get("content"))
    if not content:
        return Body()
    media = {name.partition(";")[0].strip().lower(): mapped(value) for name, value in content.items()}
    chosen = next((m for m in ("application/json", "*/*", "application/*", _FORM) if m in media), None)
    if chosen is None:
        raise LeftOutError(_why(operation, media))
    one = media[chosen]
    made = _object(document, one.get("schema", {}), 0, count(1))
    if made is None:
        raise LeftOutError("its body is not an object")
    nothing = not made.properties and (made.open is False or "properties" in mapped(one.get("schema")))
    if nothing or not one.get("schema"):
        return Body()
    made.kind = BodyKind.JSON if chosen != _FORM else _form(one)
    made.example = one.get("example")
    if made.example is None:
        examples = mapped(one.get("examples"))
        made.example = mapped(next(iter(examples.values()), None)).get("value")
    if request.get("required") is not True:
        # a body that may be absent may lack what it would need
        made.required, made.choices = [], []
    return made


def _why(operation: dict[str, Any], media: dict[str, Any]) -> str:
    if any(m.startswith("multipart/") for m in media):
        return "its body is multipart"
    if any("patch" in m for m in media):
        return "its body is a patch of another form than JSON fields"
    return f"its body is {min(media)[:60]}"


def _form(media: dict[str, Any]) -> BodyKind:
    encodings = mapped(media.get("encoding")).values()
    return (
        BodyKind.DEEP_FORM
        if any(mapped(e).get("style") == "deepObject" for e in encodings)
        else BodyKind.FORM
    )


def _object(document: Document, schema: Any, depth: int, parts: Iterator[int]) -> Body | None:
    """The properties of a schema and of all that it is put together from; None: it is not an object's."""
    if next(parts) > _MAX_PARTS:
        raise LeftOutError(f"its body is put together from more than {_MAX_PARTS:,} schemas")
    if depth > _MAX_DEPTH:
        raise LeftOutError("its schema is nested too deeply")
    if schema is True:
        return Body()
    node = document.resolved(schema)
    kind = node.get("type")
    if kind is not None and kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return None
    known = {
        name: each
        for name, each in mapped(node.get("properties")).items()
        if mapped(each).get("readOnly") is not True
    }
    hidden = mapped(node.get("properties")).keys() - known.keys()
    wanted = [n for n in listed(node.get("required")) if isinstance(n, str) and n not in hidden]
    made = Body(properties=known, required=list(dict.fromkeys(wanted)))
    more = node.get("additionalProperties", True)
    made.open = more if isinstance(more, bool | dict) else True
    for part in listed(node.get("allOf")):
        other = _object(document, part, depth + 1, parts)
        if other is None:
            return None
        _join(made, other)
        made.required = list(dict.fromkeys((*made.required, *other.required)))
        made.choices = made.choices or other.choices
    for name in ("oneOf", "anyOf"):
        ways = [
            found
            for way in listed(node.get(name))
            if (found := _object(document, way, depth + 1, parts)) is not None
        ]
        if listed(node.get(name)) and not ways:
            return None
        for other in ways:
            _join(made, other)
        if len(ways) == 1:
            made.required = list(dict.fromkeys((*made.required, *ways[0].required)))
            made.choices = made.choices or ways[0].choices
        elif ways and all(way.required for way in ways):
            made.choices = made.choices or [way.required for way in ways]
    return made


def _join(made: Body, other: Body) -> None:
    """The properties of both; where both name one, it may be as either says."""
    for name, schema in other.properties.items():
        mine = made.properties.setdefault(name, schema)
        if mine == schema:
            continue
        if isinstance(mine, dict) and mine.keys() == {"anyOf"}:
            if schema not in mine["anyOf"]:
                made.properties[name] = {"anyOf": [*mine["anyOf"], schema]}
        else:
            made.properties[name] = {"anyOf": [mine, schema]}
    if made.open is False and not other.properties:
        return
    made.open = not (made.open is False and other.open is False)
