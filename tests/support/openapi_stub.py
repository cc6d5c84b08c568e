"""An API made from its OpenAPI document, and arguments made from a tool's schema. It shares no code with the import.

The stub takes a request only if the document describes it: an operation of this method and path, all that it requires, no
other query parameter, a body of a media type that it names and that fits its schema. It answers what it understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote

import jsonschema_rs

from stub_server import Answer, Asked

Json = Any
FORM = "application/x-www-form-urlencoded"


class ApiStub:
    """Answers as the API of a document; `base` is the path before its paths."""

    def __init__(self, document: dict[str, Any], base: str = "") -> None:
        self._document = document
        self._operations = [
            (method.upper(), _pattern(base + path), path, operation, item)
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method in ("get", "put", "post", "patch", "delete")
        ]
        self.seen: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Answer:
        """The answer to a request: 200 with what was understood, 400 with what is wrong."""
        try:
            understood = self._understood(asked)
        except ValueError as error:
            return Answer(json.dumps({"wrong": str(error)}).encode(), 400)
        self.seen.append(understood)
        # an answer that repeats the credential is withheld
        shown = {
            **understood,
            "headers": {k: v for k, v in understood["headers"].items() if k != "authorization"},
        }
        return Answer(json.dumps(shown).encode())

    def _understood(self, asked: Asked) -> dict[str, Any]:
        route, _, query = asked.path.partition("?")
        # the most literal path comes first: /users/me before /users/{id}
        found = [o for o in self._operations if o[0] == asked.method and o[1].fullmatch(route)]
        if not found:
            raise ValueError(f"no operation {asked.method} {route}")
        method, pattern, path, operation, item = min(found, key=lambda o: o[2].count("{"))
        match = pattern.fullmatch(route)
        assert match is not None
        pairs = parse_qsl(query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in asked.headers.items()}
        known = set()
        for raw in (*item.get("parameters", ()), *operation.get("parameters", ())):
            one = self._resolved(raw)
            place, name = one["in"], one["name"]
            given = {
                "path": "{" + name + "}" in path,
                "query": any(_base(key) == name for key, _ in pairs),
                "header": name.lower() in headers,
            }.get(place, False)
            if one.get("required") and not given:
                raise ValueError(f"{place} parameter {name} is missing")
            if place == "query":
                known.add(name)
        if unknown := [key for key, _ in pairs if _base(key) not in known]:
            raise ValueError(f"no query parameter {unknown[0]}")
        return {
            "operation": f"{method} {path}",
            "path": [unquote(each) for each in match.groups()],
            "query": [list(pair) for pair in pairs],
            "headers": headers,
            "body": self._body(operation, headers, asked.body, path, method.lower()),
        }

    def _body(self, operation: Json, headers: dict[str, str], body: bytes, path: str, method: str) -> Json:
        kind = headers.get("content-type", "")
        if "requestBody" not in operation:
            if body:
                raise ValueError("a body, and the operation takes none")
            return None
        request = self._resolved(operation["requestBody"])
        if not body:
            if (
                request.get("required")
                and method != "get"
                and any(_needs(c) for c in request["content"].values())
            ):
                raise ValueError("the body is missing")
            return None
        content = request["content"]
        named = kind if kind in content else "*/*"
        if named not in content:
            raise ValueError(f"a body of {kind}")
        parsed = (
            _nested(parse_qsl(body.decode(), keep_blank_values=True)) if kind == FORM else json.loads(body)
        )
        if kind != FORM and "schema" in content[named]:
            self._check(content[named]["schema"], parsed)
        return parsed

    def _check(self, schema: Json, value: Json) -> None:
        root = {"components": self._document.get("components", {}), "allOf": [schema]}
        validator = jsonschema_rs.Draft4Validator(root)
        if (wrong := next(iter(validator.iter_errors(value)), None)) is not None:
            raise ValueError(f"the body does not fit: {wrong.message[:200]}")

    def _resolved(self, node: Json) -> Json:
        while "$ref" in node:
            found: Json = self._document
            for key in node["$ref"][2:].split("/"):
                found = found[key.replace("~1", "/").replace("~0", "~")]
            node = found
        return node


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{[^{}/]+\}", path)
    return re.compile("([^/]+)".join(map(re.escape, parts)))


def _base(key: str) -> str:
    return key.partition("[")[0]


def _needs(content: Json) -> bool:
    return bool(content.get("schema", {}).get("required"))


def _nested(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """A form with names such as `a[b][0]`, as Rack and qs read them; a plain name that repeats is a list."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        first, *rest = re.findall(r"[^\[\]]+", key)
        if not rest:
            found[first] = value if first not in found else [*_listed(found[first]), value]
            continue
        holder = found.setdefault(first, {})
        for part in rest[:-1]:
            holder = holder.setdefault(part, {})
        holder[rest[-1]] = value
    return {key: _as_lists(value) for key, value in found.items()}


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _as_lists(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    inner = {key: _as_lists(each) for key, each in value.items()}
    if list(inner) == [str(i) for i in range(len(inner))]:
        return list(inner.values())
    return inner


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit a tool's input schema: all that are required, and the first two others."""
    properties = schema.get("properties", {})
    choices: list[dict[str, Any]] = schema.get("anyOf", [{}])
    required = [*schema.get("required", ()), *choices[0].get("required", ())]
    others = [name for name in properties if name not in required][:2]
    return {
        name: _sample(properties.get(name, {}), schema, 0) for name in dict.fromkeys((*required, *others))
    }


def _sample(schema: Json, root: dict[str, Any], depth: int) -> Json:
    if not isinstance(schema, dict):
        return "x"
    if "$ref" in schema:
        return _sample(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for name in ("allOf", "anyOf", "oneOf"):
        if schema.get(name) and "type" not in schema:
            return _sample(schema[name][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        names = schema.get("required", ()) if depth < 8 else ()
        made = {n: _sample(schema.get("properties", {}).get(n, {}), root, depth + 1) for n in names}
        return made or ({"a": "b"} if schema.get("minProperties") else {})
    if kind == "array":
        count = max(1, int(schema.get("minItems", 1)))
        one = _sample(schema.get("items", {}), root, depth + 1)
        return [f"{one}{i}" if i and isinstance(one, str) else one for i in range(count)]
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        low: Any = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        return int(max(1, low + 1 if "maximum" not in schema else low))
    if kind == "null":
        return None
    return _text(schema)


def _text(schema: dict[str, Any]) -> str:
    for value in (*schema.get("examples", ()), schema.get("default")):
        if isinstance(value, str) and value and "/" not in value:
            return value
    if "pattern" in schema:
        tried = ("x1", "/x1", "a", "1", "A1", "sha256:" + "0" * 64, "https://a.example", "2026-11-25")
        return next((text for text in tried if re.search(schema["pattern"], text)), "x1")
    known = {"date-time": "2026-11-25T00:00:00Z", "date": "2026-11-25", "uri": "https://a.example"}
    text = known.get(schema.get("format", ""), "x1")
    return text.ljust(int(schema.get("minLength", 0)), "x")[: int(schema.get("maxLength", 200))]


def kinds(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One Tool for each kind of operation: method, places of its arguments, body."""
    found = set()
    for manifest in manifests:
        http = manifest["spec"]["backend"]["http"]
        places = {p["in"] + (" renamed" if "name" in p else "") for p in http.get("parameters", ())}
        if "{" in http.get("url", http.get("path", "")):
            places.add("path")
        default = "none" if http["method"] in ("GET", "DELETE") else "json"
        properties = manifest["spec"]["inputSchema"].get("properties", {})
        lists = any(isinstance(p, dict) and p.get("type") == "array" for p in properties.values())
        kind = f"{http['method']} {'+'.join(sorted(places)) or 'no place'}, body {http.get('body', default)}{', lists' if lists else ''}"
        if kind not in found:
            found.add(kind)
            yield kind, manifest
