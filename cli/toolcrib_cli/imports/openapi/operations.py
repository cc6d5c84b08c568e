"""One operation of a document as a Tool."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from toolcrib import names
from toolcrib.errors import InvalidManifest, SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.resources import API_VERSION, Tool, parse
from toolcrib.resources.backends import PLACEHOLDER
from toolcrib.resources.placing import ARGUMENT, BodyKind, ParameterPlace
from toolcrib.schemas import safety
from toolcrib.text import truncate
from toolcrib_cli.imports.openapi import bodies, parameters
from toolcrib_cli.imports.openapi.documents import Document, LeftOutError, listed, mapped, plain
from toolcrib_cli.imports.openapi.schemas import Schemas
from toolcrib_cli.imports.openapi.security import Scheme

_SENT = {"get": "GET", "post": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}
_IDEMPOTENT = ("get", "put", "delete")
_WITHOUT_BODY = ("get", "delete")
_MAX_EXAMPLE = 2_048
_SAYS_NOTHING = 16
"""Characters of a response's description (`OK`, `Default Response`) below which it says nothing."""
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the operations of a document are called: a Service and a path before theirs, or an address."""

    service: tuple[str, int] | None
    base: str


@dataclass(frozen=True, slots=True)
class Made:
    """A tool, and what its caller should know.

    Attributes:
        manifest: of a Tool.
        slashes: arguments that the API takes with a `/`, which stays refused.
        left_out: place and name of optional parameters that are no arguments, and why.
    """

    manifest: Manifest
    slashes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a tool is called, where it stands, and what opens it."""

    name: str
    server: str
    namespace: str
    scopes: Sequence[str]


def tool(
    document: Document,
    schemas: Schemas,
    called: Identity,
    place: Place,
    scheme: Scheme | None,
    secret: str,
    method: str,
    path: str,
    item: dict[str, Any],
    operation: dict[str, Any],
) -> Made:
    """The Tool of an operation, judged as the operator judges it.

    Raises:
        LeftOutError: there can be none.
    """
    _callable(method, operation)
    body = bodies.of_operation(document, operation)
    if method == "get" and body.kind is not BodyKind.NONE:
        body = bodies.Body()
    if any(re.fullmatch(ARGUMENT, name) is None for name in body.properties):
        raise LeftOutError("its body has a property whose name is not that of an argument")
    left_out: list[tuple[str, str]] = []
    given = parameters.of_operation(document, path, item, operation, body.properties, left_out)
    http = _http(method, path, place, given, body)
    backend: Manifest = {"http": http}
    if scheme is not None:
        header = {"header": scheme.header} if scheme.header else {}
        backend["auth"] = {
            "type": scheme.type.value, **header, "secretKeyRef": {"name": secret, "key": "credential"},
        }  # fmt: skip
    spec: Manifest = {"name": called.name, "server": called.server, **_texts(method, path, operation)}
    spec |= {"scopes": list(called.scopes), "tags": _tags(operation)}
    spec["inputSchema"] = _input(schemas, given, body)
    spec["returns"] = _returns(document, operation)
    spec["annotations"] = _hints(method)
    if operation.get("deprecated") is True:
        spec["state"] = "Deprecated"
    spec["backend"] = backend
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {"name": names.object_name(called.server, called.name), "namespace": called.namespace},
        "spec": {key: value for key, value in spec.items() if value not in (None, [], "")},
    }
    _judged(manifest)
    return Made(manifest, tuple(p.argument for p in given if p.slashes), tuple(left_out))


def _callable(method: str, operation: dict[str, Any]) -> None:
    if method not in _SENT:
        raise LeftOutError(f"its method is {method.upper()}")
    action = operation.get("x-kubernetes-action")
    if action in ("watch", "watchlist"):
        raise LeftOutError("it watches: the answer has no end")
    if action == "connect" or "101" in mapped(operation.get("responses")):
        raise LeftOutError("it upgrades the connection")
    good = [
        mapped(mapped(answer).get("content"))
        for code, answer in mapped(operation.get("responses")).items()
        if str(code).startswith("2")
    ]
    if any(content and set(content) <= {"text/event-stream"} for content in good):
        raise LeftOutError("it watches: the answer has no end")


def _http(
    method: str, path: str, place: Place, given: Sequence[parameters.Parameter], body: bodies.Body
) -> Manifest:
    route = place.base.rstrip("/") + "/" + quote(path.lstrip("/"), safe="/%:@!$&'()*+,;=~-._{}?")
    if "#" in path:
        raise LeftOutError("its path has a fragment")
    route_path, _, query = path.partition("?")
    if any(unquote(part) in (".", "..") for part in route_path.split("/")):
        raise LeftOutError("its path has a . or .. segment")
    if "{" in query:
        raise LeftOutError("its path has a placeholder in a query")
    http: Manifest = {}
    if place.service is not None:
        http["service"] = {"name": place.service[0], "port": place.service[1]}
        http["path"] = route
    else:
        http["url"] = route
    http["method"] = _SENT[method]
    placeholders = set(re.findall(PLACEHOLDER, path))
    placed = []
    for one in given:
        if one.place is ParameterPlace.PATH and one.argument == one.name and one.name in placeholders:
            continue  # the argument of its name fills it
        renamed = {} if one.name == one.argument else {"name": one.name}
        if (
            body.kind is BodyKind.NONE
            and one.place is ParameterPlace.QUERY
            and not renamed
            and _is_in_query(method)
        ):
            continue  # as all arguments that nothing places
        placed.append({"argument": one.argument, "in": one.place.value, **renamed})
    if placed:
        http["parameters"] = placed
    default = BodyKind.NONE if method in _WITHOUT_BODY else BodyKind.JSON
    if body.kind is not default:
        http["body"] = body.kind.value
    return http


def _is_in_query(method: str) -> bool:
    return method in _WITHOUT_BODY


def _texts(method: str, path: str, operation: dict[str, Any]) -> Manifest:
    summary, description = plain(operation.get("summary")), plain(operation.get("description"))
    whole = description if description.startswith(summary) else f"{summary}\n\n{description}".strip()
    title = truncate(" ".join(summary.split()), 256)
    return {
        "title": title or None,
        "description": truncate(whole or f"{method.upper()} {path}", 4_096),
    }


def _tags(operation: dict[str, Any]) -> list[str]:
    found = [" ".join(t.split())[:64] for t in listed(operation.get("tags")) if isinstance(t, str)]
    return list(dict.fromkeys(t for t in found if t))[:16]


def _input(schemas: Schemas, given: Sequence[parameters.Parameter], body: bodies.Body) -> Manifest:
    properties = {p.argument: p.schema for p in given} | body.properties
    required = [*(p.argument for p in given if p.required), *body.required]
    rest: Manifest = {}
    if required:
        rest["required"] = list(dict.fromkeys(required))
    if body.choices:
        rest["anyOf"] = [{"required": each} for each in body.choices]
    if body.kind is BodyKind.NONE or body.open is False:
        rest["additionalProperties"] = False
    if (example := _example(given, body, rest.get("required", []))) is not None:
        rest["examples"] = [example]
    return schemas.whole(properties, rest)


def _example(given: Sequence[parameters.Parameter], body: bodies.Body, required: list[str]) -> Any:
    """Arguments of a whole call, where the document has a value for all that are required."""
    found = {p.argument: p.example for p in given if p.example is not None and p.required}
    if isinstance(body.example, dict):
        found |= {k: v for k, v in body.example.items() if k in body.properties}
    if not found or any(name not in found for name in required):
        return None
    try:
        return found if len(json.dumps(found)) <= _MAX_EXAMPLE else None
    except (TypeError, ValueError, RecursionError):
        return None


def _returns(document: Document, operation: dict[str, Any]) -> str | None:
    for code, answer in mapped(operation.get("responses")).items():
        if not str(code).startswith("2"):
            continue
        try:
            said = plain(document.resolved(answer).get("description"))
        except LeftOutError:
            continue
        if len(said) > _SAYS_NOTHING:
            return truncate(said, 1_024)
    return None


def _hints(method: str) -> Manifest:
    hints = {"readOnlyHint": method == "get"}
    if method in _IDEMPOTENT:
        hints["idempotentHint"] = True
    if method == "delete":
        hints["destructiveHint"] = True
    return hints


def _judged(manifest: Manifest) -> None:
    try:
        safety.check(manifest["spec"]["inputSchema"])
        resource = parse(manifest, strict=True)
    except SchemaUnsafe as error:
        raise LeftOutError(f"its schema is refused: {_general(str(error))}") from None
    except InvalidManifest as error:
        raise LeftOutError(f"the Tool would be refused: {_general(str(error))}") from None
    except (ValueError, RecursionError):
        raise LeftOutError("it holds a value that JSON cannot carry") from None
    assert isinstance(resource, Tool)
    if next(iter(hidden_text.places(resource.spec)), None) is not None:
        raise LeftOutError("it holds hidden characters")


def _general(message: str) -> str:
    """A refusal without its place, so that operations refused for one reason count together."""
    return truncate(message.partition(": ")[2] or message, 120)
