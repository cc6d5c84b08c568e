"""Schemas of a document as JSON Schema 2020-12: one schema for a tool, with what it refers to in `$defs`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolcrib.schemas import patterns, safety
from toolcrib_cli.imports.openapi.documents import Document, LeftOutError, mapped, plain

MAX_BYTES = safety.MAX_BYTES
_MAX_DEPTH = 28
_DEFS = "#/$defs/"
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_KEPT = frozenset({
    "const", "default", "deprecated", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "uniqueItems",
})  # fmt: skip
_KEPT_3_1 = frozenset(
    {"contentEncoding", "contentMediaType", "dependentRequired", "maxContains", "minContains"}
)
_ONE = frozenset({"additionalProperties", "items", "not"})
_ONE_3_1 = frozenset(
    {"contains", "else", "if", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
_MANY = frozenset({"allOf", "anyOf", "oneOf"})
_MAPS_3_1 = frozenset({"dependentSchemas", "patternProperties"})
_PROSE = frozenset({"description", "title", "examples"})
_MAX_EXAMPLE = 512
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Definition:
    """A schema that others refer to, converted once: whole, and without its texts."""

    schema: Any
    bare: Any
    refers: frozenset[str]
    size: int
    bare_size: int


class Schemas:
    """Converts the schemas of one document; what is referred to is converted once for all operations."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[str, _Definition | LeftOutError] = {}
        self._names: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    def whole(self, properties: dict[str, Any], rest: Schema) -> Schema:
        """The input schema of a tool.

        Args:
            properties: by argument, as the document has them.
            rest: what stands beside `properties`, as it is written.

        Over 64 KiB, texts within the arguments' schemas are left out; those of the arguments themselves stay.

        Raises:
            LeftOutError: it is larger even so, or refers to what cannot be used.
        """
        refers: set[str] = set()
        arguments = {name: self.converted(schema, refers) for name, schema in properties.items()}
        closure = self._closure(refers)
        top = {"type": "object", "properties": arguments, **rest}
        if _size(top) + sum(d.size for d in closure.values()) > MAX_BYTES:
            bare = {name: _kept_texts(schema, _bare(schema)) for name, schema in arguments.items()}
            top = {**top, "properties": bare}
            if _size(top) + sum(d.bare_size for d in closure.values()) > MAX_BYTES:
                raise LeftOutError("its schema is larger than 64 KiB, even without descriptions")
            defs = {self._names[pointer]: d.bare for pointer, d in closure.items()}
        else:
            defs = {self._names[pointer]: d.schema for pointer, d in closure.items()}
        return {**top, "$defs": defs} if defs else top

    def converted(self, schema: Any, refers: set[str], depth: int = 0) -> Any:
        """`schema` as 2020-12; the pointers it refers to are added to `refers`.

        Raises:
            LeftOutError: it is nested too deeply, or refers to another document.
        """
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise LeftOutError("a schema in it is not an object")
        if depth > _MAX_DEPTH:
            raise LeftOutError("its schema is nested too deeply")
        made: Schema = {}
        if "$ref" in schema:
            pointer = schema["$ref"]
            if not isinstance(pointer, str) or not pointer.startswith("#/"):
                raise LeftOutError("it refers to another document")
            refers.add(pointer)
            made["$ref"] = _DEFS + self._name(pointer)
            if self._document.is_3_0:
                # 3.0: what stands beside a reference is ignored
                return made
        self._scalars(schema, made)
        for key, value in schema.items():
            if key in _ONE or (key in _ONE_3_1 and not self._document.is_3_0):
                made[key] = self.converted(value, refers, depth + 1)
            elif key in _MANY or (key == "prefixItems" and not self._document.is_3_0):
                if isinstance(value, list) and value:
                    made[key] = [self.converted(each, refers, depth + 1) for each in value]
            elif key in _MAPS_3_1 and not self._document.is_3_0 and isinstance(value, dict):
                made[key] = {name: self.converted(each, refers, depth + 1) for name, each in value.items()}
        properties = schema.get("properties")
        if isinstance(properties, dict):
            # the server sets what is read only
            sent = {k: v for k, v in properties.items() if mapped(v).get("readOnly") is not True}
            made["properties"] = {k: self.converted(v, refers, depth + 1) for k, v in sent.items()}
        if required := _required(schema, properties):
            made["required"] = required
        return self._nullable(schema, made)

    def _scalars(self, schema: Schema, made: Schema) -> None:
        kept = _KEPT if self._document.is_3_0 else _KEPT | _KEPT_3_1
        kinds = [k for k in _types(schema) if k in _TYPES]
        if kinds:
            made["type"] = kinds[0] if len(kinds) == 1 else kinds
        made |= {key: value for key, value in schema.items() if key in kept}
        for key in ("title", "description"):
            if text := plain(schema.get(key)):
                made[key] = text
        # the other bound becomes the exclusive one
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and bound in made:
                made[exclusive] = made.pop(bound)
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and len(pattern) <= safety.MAX_PATTERN and patterns.is_linear(pattern):
            made["pattern"] = pattern
        given = schema.get("examples") if not self._document.is_3_0 else None
        examples = given if isinstance(given, list) else [schema["example"]] if "example" in schema else []
        if short := [e for e in examples[:2] if _size(e) <= _MAX_EXAMPLE]:
            made["examples"] = short

    def _nullable(self, schema: Schema, made: Schema) -> Schema:
        if not self._document.is_3_0 or schema.get("nullable") is not True:
            return made
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        if isinstance(kind := made.get("type"), str):
            made["type"] = [kind, "null"]
            return made
        if made.keys() & _MANY:
            texts: Schema = {key: made.pop(key) for key in ("title", "description") if key in made}
            return {**texts, "anyOf": [made, {"type": "null"}]}
        return made

    def _name(self, pointer: str) -> str:
        if pointer not in self._names:
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", pointer.rsplit("/", 1)[-1])[:64] or "schema"
            if self._taken.setdefault(name, pointer) != pointer:
                name = f"{name}-{hashlib.sha256(pointer.encode()).hexdigest()[:6]}"
                self._taken[name] = pointer
            self._names[pointer] = name
        return self._names[pointer]

    def _closure(self, pointers: Iterable[str]) -> dict[str, _Definition]:
        """All that is referred to, in turn."""
        found: dict[str, _Definition] = {}
        waiting = sorted(pointers)
        size = 0
        while waiting:
            pointer = waiting.pop()
            if pointer in found:
                continue
            found[pointer] = definition = self._definition(pointer)
            size += definition.bare_size
            if size > MAX_BYTES:
                raise LeftOutError("its schema is larger than 64 KiB, even without descriptions")
            waiting.extend(definition.refers)
        return dict(sorted(found.items(), key=lambda each: self._names[each[0]]))

    def _definition(self, pointer: str) -> _Definition:
        if pointer not in self._found:
            try:
                refers: set[str] = set()
                self._name(pointer)
                schema = self.converted(self._document.at(pointer), refers)
                bare = _bare(schema)
                extra = len(self._names[pointer]) + 4
                self._found[pointer] = _Definition(
                    schema, bare, frozenset(refers), _size(schema) + extra, _size(bare) + extra
                )
            except LeftOutError as error:
                self._found[pointer] = error
        found = self._found[pointer]
        if isinstance(found, LeftOutError):
            raise LeftOutError(str(found))
        return found


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type")
    return [k for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)]


def _required(schema: Schema, properties: Any) -> list[str]:
    given = schema.get("required")
    if not isinstance(given, list):
        return []
    read_only = {
        k
        for k, v in (properties.items() if isinstance(properties, dict) else ())
        if mapped(v).get("readOnly") is True
    }
    return [name for name in dict.fromkeys(n for n in given if isinstance(n, str)) if name not in read_only]


def _size(value: Any) -> int:
    try:
        return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
    except (TypeError, ValueError, RecursionError):
        raise LeftOutError("it holds a value that JSON cannot carry") from None


def _bare(schema: Any) -> Any:
    """The schema without its texts, wherever a schema stands in it."""
    if not isinstance(schema, dict):
        return schema
    made: Schema = {}
    for key, value in schema.items():
        if key in _PROSE:
            continue
        if key == "properties" or key in _MAPS_3_1:
            made[key] = {name: _bare(each) for name, each in value.items()}
        elif key in _MANY or key == "prefixItems":
            made[key] = [_bare(each) for each in value]
        elif key in _ONE or key in _ONE_3_1:
            made[key] = _bare(value)
        else:
            made[key] = value
    return made


def _kept_texts(schema: Any, bare: Any) -> Any:
    if isinstance(bare, dict) and "description" in schema:
        return {**bare, "description": schema["description"]}
    return bare
