"""What references can multiply: a bound on the evaluations that one argument object may cost.

`work(node, d)` counts the subschemas evaluated for a value nested `d` levels deep, following every branch.
References that multiply (the "billion laughs" of JSON schema) blow it up; honest recursion does not.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from toolcrib.errors import SchemaUnsafe

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
MAX_DEPTH = 32
MAX_WORK = 1_000_000
MAX_CHAIN = 128
"""Schemas that apply to one and the same value, one through the other: evaluators recurse along them."""


def check_work(root: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """Refuse schemas whose references cost too much to follow.

    Args:
        root: the whole schema; its references have been checked to lead somewhere.
        nodes: every subschema in it.

    Raises:
        SchemaUnsafe: a reference leads back to itself; remove the cycle, references chain too long, or they multiply.
    """
    work: dict[int, int] = {}
    for _ in range(MAX_DEPTH):
        level = _Level(root, work)
        for node in nodes:
            level.cost(node)
        stable, work = level.costs == work, level.costs
        if work[id(root)] > MAX_WORK:
            raise SchemaUnsafe(f"/: references multiply to more than {MAX_WORK} evaluations; use fewer")
        if stable:
            return


class _Level:
    """The costs for values of one depth, given the costs of their children (`below`)."""

    def __init__(self, root: dict[str, Any], below: dict[int, int]) -> None:
        self.costs: dict[int, int] = {}
        self._root = root
        self._below = below
        self._heights: dict[int, int] = {}
        self._open: set[int] = set()

    def cost(self, node: Any) -> tuple[int, int]:
        """(evaluations, length of the longest chain) for one value against `node`."""
        if not isinstance(node, dict):
            return 1, 1
        key = id(node)
        if key in self.costs:
            return self.costs[key], self._heights[key]
        if key in self._open:
            raise SchemaUnsafe("/: a reference leads back to itself; remove the cycle")
        self._open.add(key)
        if len(self._open) > MAX_CHAIN:
            raise SchemaUnsafe(
                f"/: more than {MAX_CHAIN} references follow each other; refer to the last one directly"
            )
        inner = [self.cost(child) for child in in_place(self._root, node)]
        self._open.discard(key)
        total = 1 + sum(cost for cost, _ in inner) + _descent(node, self._below)
        height = 1 + max((height for _, height in inner), default=0)
        if height > MAX_CHAIN:
            raise SchemaUnsafe(
                f"/: more than {MAX_CHAIN} references follow each other; refer to the last one directly"
            )
        self.costs[key], self._heights[key] = min(total, MAX_WORK + 1), height
        return self.costs[key], height


def in_place(root: Any, node: dict[str, Any]) -> list[Any]:
    """The schemas that the same value is held against."""
    found = [lookup(root, name, node[name]) for name in REFERENCES if name in node]
    for name in ("allOf", "anyOf", "oneOf"):
        found.extend(node.get(name, ()))
    found.extend(node[name] for name in ("not", "if", "then", "else") if name in node)
    for name in ("dependentSchemas", "dependencies"):
        found.extend(child for child in node.get(name, {}).values() if isinstance(child, dict))
    return found


def _descent(node: dict[str, Any], below: dict[int, int]) -> int:
    """What one child value may cost: one named property, every pattern, and the catch-alls."""

    def cost(children: Any) -> list[int]:
        return [below.get(id(c), 1) for c in children if isinstance(c, dict)]

    of_object = max(cost(node.get("properties", {}).values()), default=0)
    of_object += sum(cost(node.get("patternProperties", {}).values()))
    of_object += sum(
        cost(node.get(name) for name in ("additionalProperties", "unevaluatedProperties", "propertyNames"))
    )
    items = node.get("items")
    listed = [*node.get("prefixItems", ()), *(items if isinstance(items, list) else [items])]
    of_array = max(cost(listed), default=0)
    of_array += sum(cost(node.get(name) for name in ("contains", "additionalItems", "unevaluatedItems")))
    return max(of_object, of_array)


def lookup(schema: Any, pointer: str, target: str) -> Any:
    """Where `#/…` leads (RFC 6901, in its percent-encoded URI form).

    Raises:
        SchemaUnsafe: nowhere; `pointer` says whose reference it is.
    """
    node = schema
    for raw in unquote(target).split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isascii() and key.isdigit() and str(int(key[:9])) == key:
            node = node[int(key)] if int(key) < len(node) else None
        else:
            node = None
        if node is None:
            raise SchemaUnsafe(
                f"{pointer}: the reference {target[:128]} does not resolve; correct it, or add the definition"
            )
    return node
