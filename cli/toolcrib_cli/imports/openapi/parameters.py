"""Parameters of an operation: which argument each becomes, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from toolcrib.resources.placing import ARGUMENT, HEADER, PLACEHOLDER, ParameterPlace, is_reserved_header
from toolcrib_cli.imports.openapi.documents import Document, LeftOutError, listed, mapped, plain

_SEPARATORS = {"spaceDelimited": "spaces", "pipeDelimited": "|", "form": "commas", "simple": "commas"}
_WATCH = frozenset({"watch", "allowWatchBookmarks"})
_MAX_PARAMETERS = 64
_ORDER = ("path", "query", "header")
Schema = dict[str, Any]


@dataclass(slots=True)
class Parameter:
    """One argument of a tool that goes elsewhere than into the body.

    Attributes:
        argument: its name for callers.
        place: where it goes.
        name: of the placeholder, query parameter or header.
        schema: as the document has it.
        required: whether it must be given.
        slashes: whether the API takes a `/` in it, which no path argument may hold.
        example: a value, if the document has one.
    """

    argument: str
    place: ParameterPlace
    name: str
    schema: Any
    required: bool
    slashes: bool = False
    example: Any = None


def of_operation(
    document: Document,
    path: str,
    item: dict[str, Any],
    operation: dict[str, Any],
    taken: Collection[str],
    left_out: list[tuple[str, str]],
) -> list[Parameter]:
    """The parameters of an operation, those of the path first.

    Args:
        document: what they refer to.
        path: as the document has it.
        item: the path item; its parameters are those of all its operations.
        operation: its own come before those of the item.
        taken: names of the body's properties: a parameter of such a name becomes an argument of another.
        left_out: receives place and name of each optional parameter that becomes no argument, and why.

    Raises:
        LeftOutError: one that is required cannot be sent.
    """
    given: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in (*listed(item.get("parameters")), *listed(operation.get("parameters"))):
        one = document.resolved(raw)
        name, place = one.get("name"), one.get("in")
        if not isinstance(name, str) or not isinstance(place, str):
            raise LeftOutError("a parameter of it has no name")
        given[place, name] = one
    placeholders = list(dict.fromkeys(re.findall(PLACEHOLDER, path.partition("?")[0])))
    for name in placeholders:
        given.setdefault(("path", name), {"schema": {"type": "string"}})
    watched = "x-kubernetes-action" in operation
    made = []
    for (place, name), one in sorted(given.items(), key=lambda each: _rank(each[0][0])):
        if watched and name in _WATCH:
            continue
        if place == "path" and name not in placeholders:
            continue
        needed = one.get("required") is True or place == "path"
        try:
            found = _parameter(document, place, name, one, required=needed)
        except LeftOutError as error:
            if needed:
                raise
            left_out.append((f"{place} {name}", str(error)))
            continue
        if found is not None:
            made.append(found)
    if len(made) > _MAX_PARAMETERS:
        raise LeftOutError(f"it has more than {_MAX_PARAMETERS} parameters")
    return _apart(made, set(taken))


def _rank(place: str) -> int:
    return _ORDER.index(place) if place in _ORDER else len(_ORDER)


def _apart(parameters: list[Parameter], taken: set[str]) -> list[Parameter]:
    """Each with an argument of its own; no query parameter or header twice in other letters."""
    sent: set[tuple[ParameterPlace, str]] = set()
    kept = []
    for one in parameters:
        key = (one.place, one.name.lower())
        if key in sent:
            if one.required:
                raise LeftOutError("two of its parameters differ in upper and lower case only")
            continue
        sent.add(key)
        if one.argument in taken:
            one.argument = f"{one.argument}_in_{one.place.value}"
        while one.argument in taken:
            one.argument += "_"
        taken.add(one.argument)
        kept.append(one)
    return kept


def _parameter(
    document: Document, place: str, name: str, one: dict[str, Any], *, required: bool
) -> Parameter | None:
    """None: one that the specification ignores, or that the registry sets."""
    if place == "cookie":
        raise LeftOutError("it needs a cookie")
    if place not in _ORDER:
        raise LeftOutError("it has a parameter of an unknown place")
    if re.fullmatch(ARGUMENT, name) is None:
        raise LeftOutError("it has a parameter whose name is not that of an argument")
    where = ParameterPlace(place)
    if where is ParameterPlace.HEADER:
        if name.lower() in ("accept", "content-type", "authorization"):
            return None
        if is_reserved_header(name):
            raise LeftOutError(
                f"it needs the header {name}, which is reserved or overrides parts of the request"
            )
        if re.fullmatch(HEADER, name) is None:
            raise LeftOutError(f"it needs the header {name}, whose name has more than letters, digits and -")
    sent_as, given, note = _sent(document, where, name, one)
    schema = {**given}
    if text := plain(one.get("description")):
        schema["description"] = text + note
    elif note:
        schema["description"] = note.strip()
    if one.get("deprecated") is True:
        schema["deprecated"] = True
    example = one.get("example")
    if example is None:
        example = mapped(next(iter(mapped(one.get("examples")).values()), None)).get("value")
    if example is None:
        example = schema.get("example")
    slashes = where is ParameterPlace.PATH and (
        one.get("x-multi-segment") is True
        or one.get("allowReserved") is True
        or name.lower() in ("path", "filepath")
        or (isinstance(example, str) and "/" in example)
    )
    return Parameter(name, where, sent_as, schema, required, slashes, example)


def _sent(
    document: Document, place: ParameterPlace, name: str, one: dict[str, Any]
) -> tuple[str, Schema, str]:
    """The name it is sent under, the schema of the argument, and what its description says of its form."""
    if "content" in one:
        return name, {"type": "string"}, " JSON."
    schema = one.get("schema")
    schema = schema if isinstance(schema, dict) else {}
    resolved = document.resolved(schema)
    default = "form" if place is ParameterPlace.QUERY else "simple"
    style = one.get("style", default)
    exploded = one.get("explode", style == "form")
    kinds = resolved.get("type")
    lists = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    objects = kinds == "object" or "properties" in resolved
    if style == "deepObject" and place is ParameterPlace.QUERY:
        items = document.resolved(resolved["items"]) if isinstance(resolved.get("items"), dict) else {}
        plain_items = lists and items.get("type") not in ("object", "array")
        # servers that read name[key] take lists of single values as name[]
        return (f"{name}[]" if plain_items else name), schema, ""
    if (
        not isinstance(style, str)
        or style not in _SEPARATORS
        or ((style == "form") is not (place is ParameterPlace.QUERY) and style in ("form", "simple"))
    ):
        raise LeftOutError("it has a parameter of a style that no tool sends")
    if objects:
        raise LeftOutError("it has a parameter that is an object")
    if lists and not (place is ParameterPlace.QUERY and style == "form" and exploded):
        return name, {"type": "string"}, f" Values, separated by {_SEPARATORS[style]}."
    return name, schema, ""
