"""The shape of every JSON-schema keyword: what the published meta-schemas demand of its value.

A schema whose keywords are misshapen cannot be compiled later, at the first call; it is refused here, at apply.
(JSON Schema 2020-12 meta/validation, meta/applicator, meta/core; draft-04 where it differs.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from toolcrib.errors import SchemaUnsafe

DRAFT_04 = "http://json-schema.org/draft-04/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
DIALECTS = (
    DRAFT_2020,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    DRAFT_04,
)
TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _number(value) and value >= 0 and float(value).is_integer()


def _strings(value: Any) -> bool:
    return (
        isinstance(value, list) and all(isinstance(v, str) for v in value) and len(set(value)) == len(value)
    )


def _string(value: Any) -> bool:
    return isinstance(value, str)


def _anchor(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9._-]{0,127}", value) is not None


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("minimum", "maximum"), (_number, "a number")),
    "multipleOf": (lambda v: _number(v) and v > 0, "a number above 0"),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
         "maxContains"), (_count, "a whole number of at least 0"),
    ),
    **dict.fromkeys(
        ("title", "description", "format", "$comment", "contentEncoding", "contentMediaType"),
        (_string, "a string"),
    ),
    # harmless: only references of the form #/… are followed
    "$anchor": (_anchor, "a name of letters, digits, `.`, `_` and `-`, at most 128 characters"),
    **dict.fromkeys(
        ("uniqueItems", "readOnly", "writeOnly", "deprecated", "$recursiveAnchor"), (_boolean, "true or false")
    ),
    **dict.fromkeys(("enum", "examples"), (_list, "a list")),
    "required": (_strings, "a list of different names"),
    "dependentRequired": (
        lambda v: isinstance(v, dict) and all(map(_strings, v.values())), "a map of lists of different names",
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), (_filled_list, "a list of schemas, not empty")),
    **dict.fromkeys(
        ("$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"),
        (_mapping, "an object"),
    ),
}  # fmt: skip


def dialect_of(schema: dict[str, Any]) -> str:
    """The dialect the root declares; 2020-12 if it declares none.

    Raises:
        SchemaUnsafe: an unknown one.
    """
    declared = schema.get("$schema", DRAFT_2020)
    known = declared[:-1] if isinstance(declared, str) and declared.endswith("#") else declared
    if not isinstance(known, str) or known not in DIALECTS:
        raise SchemaUnsafe("/$schema: unknown dialect; leave it out for 2020-12")
    return known


def check_shapes(pointer: str, node: dict[str, Any], dialect: str) -> None:
    """Refuse a keyword whose value no evaluator can use.

    Raises:
        SchemaUnsafe: naming the keyword and what it wants.
    """
    for key, value in node.items():
        shape = _SHAPES.get(key)
        if shape is not None and not shape[0](value):
            raise SchemaUnsafe(f"{pointer}/{key}: expected {shape[1]}")
    exclusive, wanted = (_boolean, "true or false") if dialect == DRAFT_04 else (_number, "a number")
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if key in node and not exclusive(node[key]):
            raise SchemaUnsafe(f"{pointer}/{key}: expected {wanted}")
    if dialect == DRAFT_04:
        _check_draft_04(pointer, node)
    if isinstance(node.get("items"), list) and (dialect == DRAFT_2020 or not node["items"]):
        raise SchemaUnsafe(f"{pointer}/items: expected one schema; for a list of schemas use prefixItems")
    _check_dependencies(pointer, node)
    _check_type(pointer, node)


def _check_draft_04(pointer: str, node: dict[str, Any]) -> None:
    for key in ("required", "enum"):
        if key in node and not node[key]:
            raise SchemaUnsafe(f"{pointer}/{key}: draft-04 requires at least one")
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in node and bound.lower() not in node:
            raise SchemaUnsafe(f"{pointer}/exclusive{bound}: draft-04 requires {bound.lower()} beside it")


def _check_dependencies(pointer: str, node: dict[str, Any]) -> None:
    for name, value in (node.get("dependencies") or {}).items():
        if isinstance(value, list) and not _strings(value):
            raise SchemaUnsafe(f"{pointer}/dependencies/{name}: expected a list of different names")


def _check_type(pointer: str, node: dict[str, Any]) -> None:
    if "type" not in node:
        return
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in TYPES:
            raise SchemaUnsafe(f"{pointer}/type: {str(kind)[:64]!r} is not a JSON type")
    if not kinds or len(set(kinds)) != len(kinds):
        raise SchemaUnsafe(f"{pointer}/type: expected different types, at least one")
