"""Runtime registration: from a short body to a published tool, checked like any other.

RegistrationError
├── AlreadyRegistered      its name is taken
├── RegistrationForbidden  its caller may not register any more; nothing has changed
├── RegistrationRefused    it is no valid Tool; nothing has changed
└── RegistrationFailed     it could not be stored; nothing has changed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from toolcrib import names, publishing
from toolcrib.errors import InvalidManifest, SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.resources import parse
from toolcrib.schemas import safety as schema_safety
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib.wire.simple import Registration
from toolcrib_registry.failures import Failure
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import PolicySource, target

AddressCheck = Callable[[PublishedBackend, str], None]
"""Raises Failure for a backend (in a namespace) that may not be called."""


class RegistrationError(Exception):
    """A registration that did not happen."""


class AlreadyRegistered(RegistrationError):
    """A tool of that name and server is registered already."""


class RegistrationForbidden(RegistrationError):
    """The caller lost the power while it waited; nothing has changed."""


class RegistrationRefused(RegistrationError):
    """It is no valid Tool, and asking again does not help; nothing has changed."""


class RegistrationFailed(RegistrationError):
    """It could not be made durable and in effect in time; the message says if it may still come."""


class Registrar(Protocol):
    """Makes a runtime registration last."""

    async def register(self, tool: PublishedTool, allowed: Callable[[], bool]) -> None:
        """Return when `tool` is durable and in effect.

        `allowed` says whether its caller may still register; ask it when the turn has come.

        Raises:
            RegistrationForbidden: it may not any more; nothing has changed.
            AlreadyRegistered: its name is taken.
            RegistrationRefused: it is no valid Tool; nothing has changed.
            RegistrationFailed: it could not be stored and put into effect in time.
        """
        ...


def address_check(policy: PolicySource) -> AddressCheck:
    """The check that calls make, ahead of any call; names are resolved at the call only."""

    def check(backend: PublishedBackend, namespace: str) -> None:
        try:
            target(backend, namespace=namespace, policy=policy.current)
        except EgressRefused as error:
            raise Failure("egress_refused", f"host: {error.reason}") from error

    return check


def tool_of(body: Registration, namespace: str) -> PublishedTool:
    """The tool that `body` asks for, in `namespace`.

    Raises:
        Failure: a scope is reserved, the schema is unsafe, host and port do not go together, or what comes
            out is no valid Tool.
    """
    if reserved := [s for s in body.scopes if names.is_reserved_scope(s)]:
        raise Failure("reserved_scope", f"No tool may carry {', '.join(reserved)}: registry:* is reserved.")
    if len(set(body.scopes)) != len(body.scopes):
        raise Failure("invalid_request", "scopes: a scope is given twice. Remove one.")
    if (body.host is None) != (body.port is None):
        raise Failure("invalid_request", "Specify host and port together.")
    object_name = names.object_name(body.server, body.name)
    tool_id = names.tool_id(namespace, object_name)
    schema = _schema(body)
    try:
        schema_safety.check(schema)
        made = publishing.with_digests(
            tool_id=tool_id,
            uid=f"runtime:{tool_id}",
            generation=1,
            namespace=namespace,
            name=body.name,
            server=body.server,
            description=body.description,
            scopes=body.scopes,
            tags=body.tags,
            examples=body.examples,
            input_schema=schema,
            returns=body.returns,
            backend=_backend(body),
            source="runtime",
        )
        # what makes it last is a manifest: the verdict on that one falls here, while its caller can mend it
        parse(publishing.manifest(made), strict=True)
    except SchemaUnsafe as error:
        raise Failure("schema_unsafe", f"input_schema: {error}") from error
    except InvalidManifest as error:
        raise Failure("invalid_request", str(error)[:500]) from error
    except ValueError as error:
        raise Failure("invalid_request", "The definition cannot be written as JSON.") from error
    if found := list(hidden_text.places(made)):
        said = hidden_text.message(found)
        raise Failure("hidden_text", f"{said} ({hidden_text.HINT})"[:500])
    return made


def _backend(body: Registration) -> PublishedBackend | None:
    if body.host is None:
        return None
    if "/../" in f"{body.endpoint}/" or "?" in body.endpoint or "#" in body.endpoint:
        raise Failure("invalid_request", "endpoint: must be a path without query, fragment and .. segments.")
    host = f"[{body.host}]" if ":" in body.host and not body.host.startswith("[") else body.host
    if any(c in host for c in "/@?#\\ \t") or not host.isascii() or not host.isprintable():
        raise Failure("invalid_request", "host: must be a host name or an address.")
    return PublishedBackend(url=f"http://{host}:{body.port}{body.endpoint}")


def _schema(body: Registration) -> dict[str, Any]:
    if body.input_schema is not None:
        return body.input_schema
    given = body.parameters or {}
    if given.get("type") == "object" and isinstance(given.get("properties", {}), dict):
        return given
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, inner in given.items():
        # both dialects in the field: {"city": "string"} and {"city": {"type": …, "required": true}}
        own = {"type": inner} if isinstance(inner, str) else dict(inner) if isinstance(inner, dict) else {}
        if own.get("type") == "any":
            del own["type"]
        if isinstance(own.get("required"), bool) and own.pop("required"):
            required.append(name)
        properties[name] = own
    schema: dict[str, Any] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    return schema
