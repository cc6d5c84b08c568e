"""Whether a JSON schema that somebody else wrote may be evaluated at all.

Schemas are input: a reference may fetch, a pattern may run for ever, a deep one may overflow. The same verdict
is given by `validate`, by the operator and by runtime registration (DESIGN §5, Schemas are input too).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas import compile_time
from toolcrib.schemas.keywords import DIALECTS, DRAFT_04, check_shapes, dialect_of
from toolcrib.schemas.patterns import MAX_WEIGHT, is_linear, weight
from toolcrib.schemas.references import MAX_CHAIN, MAX_DEPTH, MAX_WORK, REFERENCES, check_work, lookup
from toolcrib.schemas.remembered import Remembered

__all__ = ["DIALECTS", "MAX_BYTES", "MAX_CHAIN", "MAX_DEPTH", "MAX_NODES", "MAX_WORK", "check", "is_linear"]

MAX_BYTES = 64 * 1024
MAX_NODES = 10_000
MAX_PATTERN = 1_024
_SUBSCHEMAS = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_SUBSCHEMA_MAPS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"}
)
_SUBSCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})


def check(schema: Any, *, arguments: bool = True) -> None:
    """Accept `schema` or say why not.

    Args:
        schema: what stands in `inputSchema` or `outputSchema`.
        arguments: an input schema describes an object; anything else at its top is refused.

    Raises:
        SchemaUnsafe: naming the place (a JSON pointer) and the rule.
    """
    if not isinstance(schema, dict):
        raise SchemaUnsafe("/: a schema must be a JSON object")
    text = Remembered(_bounded(schema))
    problem = _problem(text, arguments=arguments)
    text.forget()
    if problem is not None:
        raise SchemaUnsafe(problem)


@lru_cache(maxsize=32)
def _problem(text: Remembered, *, arguments: bool) -> str | None:
    """What is wrong with a schema; remembered by its digest, since operator and lint ask one after the other."""
    try:
        # of its own at each place: YAML's anchors share what counts again
        _check(json.loads(text.text), arguments=arguments)
    except SchemaUnsafe as error:
        return str(error)
    return None


def _check(schema: dict[str, Any], *, arguments: bool) -> None:
    if arguments and schema.get("type", "object") != "object":
        raise SchemaUnsafe(f"/type: must be object, since arguments are an object, not {schema['type']!r}")
    dialect = dialect_of(schema)
    nodes: list[dict[str, Any]] = []
    places: list[tuple[str, Any]] = [("", schema)]
    seen: set[int] = set()
    referenced, heavy, slow = False, 0, 0.0
    times: dict[str, float] = {}
    while places:
        place, found = places.pop()
        if id(found) in seen:
            continue
        for pointer, node in _walk(found, place):
            if id(node) in seen:
                continue
            seen.add(id(node))
            nodes.append(node)
            _check_node(pointer, node, dialect)
            for at, pattern in _patterns(pointer, node):
                heavy += weight(pattern)
                if heavy > MAX_WEIGHT:
                    raise SchemaUnsafe(
                        f"{at}: the patterns of the schema are too large together; shorten them"
                    )
                if pattern not in times:
                    # before it is tried here: that takes as long
                    times[pattern] = compile_time.pattern_time(pattern)
                    slow += times[pattern]
                    if slow > compile_time.BUDGET:
                        raise SchemaUnsafe(f"{at}: {compile_time.TOO_SLOW}")
                if not is_linear(pattern):
                    raise SchemaUnsafe(
                        f"{at}: look-around, back references and huge repeats are not supported; use RE2 syntax"
                    )
            for key in REFERENCES:
                if key in node:
                    # a reference makes a schema of what it leads to, wherever that stands
                    referenced = True
                    places.append((node[key][1:129], lookup(schema, f"{pointer}/{key}", node[key])))
    if referenced:
        check_work(schema, nodes)
    compile_time.check(schema, nodes)


def _bounded(schema: Any) -> bytes:
    """The schema as JSON; depth, node count and size without recursion: the input may be deeper than the stack."""
    nodes, stack = 0, [(schema, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaUnsafe(f"/: nested deeper than {MAX_DEPTH} levels; use a flatter one")
        if nodes > MAX_NODES:
            raise SchemaUnsafe(f"/: more than {MAX_NODES} nodes; describe fewer parameters")
        if isinstance(node, dict):
            odd = [key for key in node if not isinstance(key, str)]
            if odd:
                raise SchemaUnsafe(f"/: the key {odd[0]!r} is not text; write it in quotes")
            stack.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list):
            stack.extend((child, depth + 1) for child in node)
    try:
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise SchemaUnsafe(
            "/: not plain JSON; use only objects, lists, text, numbers, true, false and null"
        ) from error
    if len(text) > MAX_BYTES:
        raise SchemaUnsafe(f"/: {len(text)} bytes, more than {MAX_BYTES}; shorten descriptions")
    return text


def _walk(node: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place where a schema may stand; instances (`const`, `default`, `enum`, `examples`) are not walked."""
    if not isinstance(node, dict):
        if not isinstance(node, bool):
            raise SchemaUnsafe(f"{pointer or '/'}: a schema must be an object or a boolean")
        return
    yield pointer, node
    for key, child in node.items():
        at = f"{pointer}/{_escape(str(key))}"
        if key in _SUBSCHEMA_LISTS and isinstance(child, list):
            for i, item in enumerate(child):
                yield from _walk(item, f"{at}/{i}")
        elif key in _SUBSCHEMAS:
            yield from _walk(child, at)
        elif key in _SUBSCHEMA_MAPS:
            for name, item in child.items():
                if key == "dependencies" and isinstance(item, list):
                    continue
                yield from _walk(item, f"{at}/{_escape(str(name))}")


def _check_node(pointer: str, node: dict[str, Any], dialect: str) -> None:
    for key in REFERENCES:
        if key in node:
            target = node[key]
            if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
                raise SchemaUnsafe(f"{pointer}/{key}: only references within the schema (#/…) are allowed")
    # `id` is a base address in draft-04 and just a word elsewhere
    for key in ("$id", "$dynamicAnchor", "$vocabulary", *(("id",) if dialect == DRAFT_04 else ())):
        if key in node:
            raise SchemaUnsafe(f"{pointer}/{key}: a schema cannot set a base address; remove {key}")
    if pointer and "$schema" in node and dialect_of(node) != dialect:
        raise SchemaUnsafe(f"{pointer}/$schema: only the top of a schema can name its dialect; remove it")
    check_shapes(pointer, node, dialect)


def _patterns(pointer: str, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The regular expressions of a node.

    Raises:
        SchemaUnsafe: one is no string, or too long.
    """
    own = [(f"{pointer}/pattern", node["pattern"])] if "pattern" in node else []
    for at, pattern in own + [(f"{pointer}/patternProperties", p) for p in node.get("patternProperties", {})]:
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            raise SchemaUnsafe(f"{at}: a pattern must be a string of at most {MAX_PATTERN} characters")
        yield at, pattern


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
