"""YAML as Kubernetes reads it, bounded, with the line of each value; `loose`: as other programs read it.

Of manifests, and of the local mode's hosts file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MAX_DEPTH = 100
"""Nesting of a document; libyaml's composer recurses in C and takes the process with it far below 100,000."""
MAX_NODES = 1_000_000
"""Values of a file, each alias counted as all that it stands for."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML as Kubernetes reads it: no timestamps, no octal or sexagesimal surprises, duplicate keys refused."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in (
    ("tag:yaml.org,2002:int", r"^[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)$"),
    ("tag:yaml.org,2002:float", r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+)$"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list("-+0123456789."))


def _mapping(loader: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"a key must be a string, not {key!r}", key_node.start_mark
            )
        if key in result:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        result[key] = loader.construct_object(value_node, deep=True)
    return result


def _construct_map(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    return _mapping(loader, node)


def _construct_int(loader: Any, node: yaml.Node) -> int:
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError:
        raise yaml.constructor.ConstructorError(
            None, None, "a whole number that long is refused", node.start_mark
        ) from None


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))


def check_bounds(text: str) -> None:
    """Refuse what would take the stack, or multiply by aliases, before anything recurses or expands.

    Raises:
        yaml.YAMLError: it is nested too deeply, holds too much, or is no YAML.
    """
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    total = 0
    event: Any
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        for much, what in (
            (len(open_) > MAX_DEPTH, f"nested deeper than {MAX_DEPTH} levels"),
            (total > MAX_NODES, f"more than {MAX_NODES} values, aliases expanded"),
        ):
            if much:
                raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)


def nodes(text: str) -> Iterator[yaml.Node]:
    """The documents of a text; empty ones are left out. Raises yaml.YAMLError."""
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


def value(node: yaml.Node) -> Any:
    """What a node stands for, in plain Python. Raises yaml.YAMLError: a duplicate key, or one that is no string."""
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def child(node: yaml.Node, key: str) -> Any:
    """The value of `key` in a mapping that has it."""
    assert isinstance(node, yaml.MappingNode)
    return next(value for name, value in node.value if name.value == key)


def line_of(node: yaml.Node, path: str) -> int:
    """The line of the deepest part of `path` (`spec.scopes[1]`) that stands in the document."""
    line = node.start_mark.line + 1
    for part in [p for p in path.replace("[", ".").replace("]", "").split(".") if p]:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == part), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def loose(text: str) -> Any:
    """The one document of a text as other programs write them: keys as they are written (`200`), the last of two alike counts.

    Raises:
        yaml.YAMLError: it is no YAML, too large (see `check_bounds`), in itself, or more than one document.
    """
    check_bounds(text)
    found = list(nodes(text))
    if len(found) != 1:
        raise yaml.YAMLError("it must hold one document")
    loader = _Loader("")
    try:
        return _loose(loader, found[0], {}, set())
    finally:
        loader.dispose()


def _loose(loader: Any, node: yaml.Node, made: dict[int, Any], open_: set[int]) -> Any:
    if id(node) in open_:
        raise yaml.MarkedYAMLError(problem="an alias within what it stands for", problem_mark=node.start_mark)
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_object(node, deep=True)
    if id(node) not in made:
        open_.add(id(node))
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            made[id(node)] = {_key(k): _loose(loader, v, made, open_) for k, v in node.value}
        else:
            made[id(node)] = [_loose(loader, each, made, open_) for each in node.value]
        open_.discard(id(node))
    return made[id(node)]


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=node.start_mark)
    return str(node.value)
