"""Whether a JSON schema that somebody else wrote may be evaluated at all.

Schemas are input: a reference may fetch, a pattern may run for ever, a deep one may overflow. The same verdict
is given by `validate`, by the operator and by runtime registration (DESIGN §5, Schemas are input too).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from toolcrib.errors import SchemaUnsafe

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_PATTERN = 1_024
MAX_WORK = 1_000_000
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
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
        raise SchemaUnsafe("/: a schema is a JSON object")
    _bounded(schema)
    if arguments and schema.get("type", "object") != "object":
        raise SchemaUnsafe(f"/type: arguments are an object, not {schema['type']!r}")
    targets: list[tuple[str, str]] = []
    nodes: list[dict[str, Any]] = []
    for pointer, node in _walk(schema, ""):
        nodes.append(node)
        _check_node(pointer, node, targets)
    for pointer, target in targets:
        _lookup(schema, pointer, target)
    if targets:
        _check_work(schema, nodes)


def _bounded(schema: Any) -> None:
    """Depth, node count and size, without recursion: the input may be deeper than the stack."""
    nodes, stack = 0, [(schema, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaUnsafe(f"/: nested deeper than {MAX_DEPTH} levels")
        if nodes > MAX_NODES:
            raise SchemaUnsafe(f"/: more than {MAX_NODES} nodes")
        if isinstance(node, dict):
            stack.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list):
            stack.extend((child, depth + 1) for child in node)
    try:
        size = len(json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode())
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise SchemaUnsafe("/: not plain JSON") from error
    if size > MAX_BYTES:
        raise SchemaUnsafe(f"/: {size} bytes, more than {MAX_BYTES}")


def _walk(node: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place where a schema may stand; instances (`const`, `default`, `enum`, `examples`) are not walked."""
    if not isinstance(node, dict):
        if not isinstance(node, bool):
            raise SchemaUnsafe(f"{pointer or '/'}: a schema is an object or a boolean")
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
            if not isinstance(child, dict):
                raise SchemaUnsafe(f"{at}: expected an object")
            for name, item in child.items():
                if key == "dependencies" and isinstance(item, list):
                    continue
                yield from _walk(item, f"{at}/{_escape(str(name))}")


def _check_node(pointer: str, node: dict[str, Any], targets: list[tuple[str, str]]) -> None:
    for key in _REFERENCES:
        if key in node:
            target = node[key]
            if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
                raise SchemaUnsafe(f"{pointer}/{key}: only references within the schema (#/…) are followed")
            targets.append((f"{pointer}/{key}", target))
    for key in ("$id", "id", "$anchor", "$dynamicAnchor", "$vocabulary"):
        if isinstance(node.get(key), str if key != "$vocabulary" else dict) and (
            key != "id" or pointer == ""
        ):
            if key == "id" and not str(node[key]).startswith(("http:", "https:", "file:", "urn:")):
                continue
            raise SchemaUnsafe(f"{pointer}/{key}: a schema here has no base address of its own; remove {key}")
    if "$schema" in node:
        dialect = node["$schema"]
        if not isinstance(dialect, str) or dialect.rstrip("#") not in DIALECTS:
            raise SchemaUnsafe(f"{pointer}/$schema: unknown dialect")
    if "pattern" in node:
        _check_pattern(f"{pointer}/pattern", node["pattern"])
    for pattern in node.get("patternProperties") or {}:
        _check_pattern(f"{pointer}/patternProperties", pattern)
    _check_type(pointer, node)


def _check_type(pointer: str, node: dict[str, Any]) -> None:
    if "type" not in node:
        return
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise SchemaUnsafe(f"{pointer}/type: {kind!r} is no JSON type")


def _check_pattern(pointer: str, pattern: Any) -> None:
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        raise SchemaUnsafe(f"{pointer}: a pattern is a string of at most {MAX_PATTERN} characters")
    if not is_linear(pattern):
        raise SchemaUnsafe(
            f"{pointer}: look-around, back references and huge repeats are not run (RE2 syntax only)"
        )


@lru_cache(maxsize=4_096)
def is_linear(pattern: str) -> bool:
    """Whether the linear-time engine (Rust's `regex`, the one that pydantic carries) accepts the pattern."""
    try:
        TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return False
    return True


def _check_work(schema: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """Bound what references can multiply: the evaluations that one path of nested arguments may cost.

    `work(node, d)` counts the subschemas evaluated for a value nested `d` levels deep, following every branch;
    references that multiply (the "billion laughs" of JSON schema) blow it up, honest recursion does not.
    """
    work: dict[int, int] = {}
    for _ in range(MAX_DEPTH):
        level: dict[int, int] = {}
        for node in nodes:
            _work(schema, node, level, work, set())
        stable, work = level == work, level
        if work[id(schema)] > MAX_WORK:
            raise SchemaUnsafe(f"/: references multiply to more than {MAX_WORK} evaluations")
        if stable:
            return


def _work(
    root: dict[str, Any], node: Any, level: dict[int, int], below: dict[int, int], open_nodes: set[int]
) -> int:
    if not isinstance(node, dict):
        return 1
    key = id(node)
    if key in level:
        return level[key]
    if key in open_nodes:
        raise SchemaUnsafe("/: a reference leads back to itself")
    open_nodes.add(key)
    total = 1
    for name in _REFERENCES:
        if name in node:
            total += _work(root, _lookup(root, name, node[name]), level, below, open_nodes)
    for name in ("allOf", "anyOf", "oneOf"):
        for child in node.get(name) or []:
            total += _work(root, child, level, below, open_nodes)
    for name in ("not", "if", "then", "else"):
        if name in node:
            total += _work(root, node[name], level, below, open_nodes)
    for child in (node.get("dependentSchemas") or {}).values():
        total += _work(root, child, level, below, open_nodes)
    total += _descent(node, below)
    open_nodes.discard(key)
    level[key] = min(total, MAX_WORK + 1)
    return level[key]


def _descent(node: dict[str, Any], below: dict[int, int]) -> int:
    """What one child value may cost: one named property, every pattern, and the catch-alls."""

    def cost(children: Any) -> list[int]:
        return [below.get(id(c), 1) for c in children if isinstance(c, dict)]

    of_object = max(cost((node.get("properties") or {}).values()), default=0)
    of_object += sum(cost((node.get("patternProperties") or {}).values()))
    of_object += sum(cost([node.get("additionalProperties"), node.get("unevaluatedProperties")]))
    items = node.get("items")
    listed = (node.get("prefixItems") or []) + (items if isinstance(items, list) else [items])
    of_array = max(cost(listed), default=0)
    of_array += sum(cost([node.get(name) for name in ("contains", "additionalItems", "unevaluatedItems")]))
    return max(of_object, of_array)


def _lookup(schema: Any, pointer: str, target: str) -> Any:
    node = schema
    for raw in target.split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaUnsafe(f"{pointer}: the reference {target} leads nowhere") from None
    return node


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
