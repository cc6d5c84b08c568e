"""The objects of the running local mode with their conditions: a route for `toolcrib get`, opened by the data folder's key.
Beside it the routes of `toolcrib approvals` and `toolcrib calls`.

Our kinds alone are shown, and how many of others there are: of a Secret nothing else.
"""

from __future__ import annotations

import asyncio
import copy
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from toolcrib import names
from toolcrib.resources import API_VERSION, KINDS, Tool, ToolCanary, crd, durations
from toolcrib.resources.conditions import timestamp
from toolcrib_cli.local import listener
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.calls import Calls
from toolcrib_cli.local.decisions import Decisions
from toolcrib_cli.local.folders import Folders, Key
from toolcrib_cli.local.imported import ImportedTools, owner_of
from toolcrib_cli.local.questions import CALLS, DECISIONS, PATH
from toolcrib_cli.manifests import COMPANIONS
from toolcrib_operator.adapters.memory import MemoryWriter
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.world import World
from toolcrib_registry.http.host_rules import HostRules

_CHUNK = 200
_METHODS = {PATH: ("GET",), DECISIONS: ("POST",), CALLS: ("GET", "POST"), listener.PATH: ("GET",)}
_MOST_BODY = 64 * 1024
_Scope = MutableMapping[str, Any]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, Any, _Send], Awaitable[None]]


class Objects:
    """Answers `GET /local/objects?kind=…&namespace=…&name=…` to who has the key; a kind may be asked for several times."""

    def __init__(
        self,
        world: World,
        folders: Folders,
        writer: MemoryWriter,
        key: str,
        url: str,
        rules: HostRules,
        approvals: Approvals,
        decisions: Decisions,
        calls: Calls,
        imported: ImportedTools,
    ) -> None:
        self._world, self._folders, self._writer, self._rules = world, folders, writer, rules
        self._approvals, self._decisions, self._imported = approvals, decisions, imported
        self._calls = calls
        self._bearer = f"Bearer {key}".encode()
        self._prove: Callable[[str], str] = partial(listener.proof, key, url)

    def beside(self, app: _App) -> _App:
        """An app that answers this route, and asks `app` for all others."""

        async def answer(scope: _Scope, receive: Any, send: _Send) -> None:
            if scope["type"] != "http" or scope["path"] not in _METHODS:
                await app(scope, receive, send)
            elif (
                foreign := self._rules.check(*(_named(scope, n) for n in (b"host", b"origin")))
            ) is not None:
                said = {"code": foreign.code, "detail": foreign.detail}
                await _send(send, foreign.status_code, [json.dumps(said).encode()])
            elif scope["path"] == listener.PATH:  # who asks has no key to show yet
                nonce = "".join(parse_qs(scope["query_string"].decode("latin-1")).get("nonce", ()))
                if listener.NONCE.fullmatch(nonce):
                    await _send(send, 200, [json.dumps({"proof": self._prove(nonce)}).encode()])
                else:
                    said = {"code": "invalid_request", "detail": "Specify `nonce`: 32 hexadecimal digits."}
                    await _send(send, 400, [json.dumps(said).encode()])
            elif not self._knows(scope):
                await _send(
                    send, 401, [b'{"code": "invalid_token", "detail": "The key is not that of this run."}']
                )
            elif scope["method"] not in (methods := _METHODS[scope["path"]]):
                said = {"code": "method_not_allowed", "detail": f"{' and '.join(methods)} only."}
                await _send(send, 405, [json.dumps(said).encode()])
            elif scope["path"] == CALLS:
                status, answered = (
                    self._calls.waiting()
                    if scope["method"] == "GET"
                    else self._calls.decided(await _received(receive))
                )
                await _send(send, status, [json.dumps(answered).encode()])
            elif scope["path"] == DECISIONS:
                status, answered = await self._decisions.answer(await _received(receive))
                await _send(send, status, [json.dumps(answered).encode()])
            else:
                asked = parse_qs(scope["query_string"].decode("latin-1"))
                # thousands of objects are no work for the event loop
                await _send(send, 200, await asyncio.to_thread(lambda: list(self._body(asked))))

        return answer

    def forget(self, removed: Iterable[Key]) -> None:
        """What was said of objects that are gone."""
        for kind, namespace, name in removed:
            self._writer.forget(Ref(kind, f"{namespace}/{name}" if namespace else name))

    def _knows(self, scope: _Scope) -> bool:
        given = next(iter(_named(scope, b"authorization")), b"")
        return hmac.compare_digest(given, self._bearer)

    def _body(self, asked: Mapping[str, list[str]]) -> Iterator[bytes]:
        namespace, name = (next(iter(asked.get(part, ())), None) for part in ("namespace", "name"))
        found = [
            entry
            for kind in asked.get("kind", list(KINDS))
            if kind in KINDS
            for entry in self._world.all(kind)
            if (namespace is None or entry.ref.namespace == namespace or not KINDS[kind].namespaced)
            and (name is None or entry.ref.name == name)
        ]
        found.sort(key=lambda entry: (list(KINDS).index(entry.ref.kind), entry.ref.key))
        others = {
            kind: sum(1 for each, _, _ in list(self._folders.objects) if each == kind) for kind in COMPANIONS
        }
        yield b'{"others": ' + json.dumps(others).encode() + b', "objects": ['
        for start in range(0, len(found), _CHUNK):
            part = ", ".join(json.dumps(self._object(entry)) for entry in found[start : start + _CHUNK])
            yield (b", " if start else b"") + part.encode()
        yield b"]}"

    def _object(self, entry: Entry) -> dict[str, Any]:
        ref = entry.ref
        item = self._folders.objects.get((ref.kind, ref.namespace, ref.name))
        written = {} if item is None else dict(item.body.get("metadata") or {})
        metadata: dict[str, Any] = {"name": ref.name} | (
            {"namespace": ref.namespace} if ref.namespace else {}
        )
        metadata |= {k: written[k] for k in ("labels", "annotations") if written.get(k)}
        if item is None and entry.owner:
            metadata |= {"labels": dict(entry.labels), "ownerReferences": [owner_of(entry)]}
        of = (
            names.candidate_id(ref.key) if ref.kind == "ToolCanary" else ref.key if ref.kind == "Tool" else ""
        )
        if left := self._approvals.annotations(of):
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **left}
        metadata |= {
            "generation": entry.generation,
            "creationTimestamp": timestamp(durations.instant(entry.created)),
        }
        if item is not None:
            spec = item.body["spec"]
        else:
            resource = entry.resource
            spec = {} if resource is None else resource.spec.model_dump(
                by_alias=True, mode="json", exclude_none=True, exclude_defaults=True
            )  # fmt: skip
        held = entry.resource
        if isinstance(held, Tool | ToolCanary) and held.spec.approved_digest is not None:
            # the local mode keeps approvals beside the manifests
            spec = {**spec, "approvedDigest": held.spec.approved_digest}
        shown = {
            "apiVersion": API_VERSION, "kind": ref.kind, "metadata": metadata,
            "spec": _defaulted(_schema(ref.kind), spec), "status": dict(entry.status),
        }  # fmt: skip
        events = [
            {"type": e.type, "reason": e.reason, "message": e.message, "at": e.at}
            for e in self._writer.events_of(ref)
        ]
        stands = item or self._imported.item_of(entry)
        place = "" if stands is None else f"{stands.file}:{stands.line}"
        return {"object": shown, "manifest": place, "events": events}


def _named(scope: _Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


async def _received(receive: Any) -> Any:
    """The JSON of a request's body; None where it is none, or too large."""
    body, more = b"", True
    while more and len(body) <= _MOST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    try:
        return json.loads(body) if len(body) <= _MOST_BODY else None
    except (ValueError, RecursionError):
        return None


async def _send(send: _Send, status: int, chunks: list[bytes]) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if len(chunks) == 1:
        headers.append((b"content-length", str(len(chunks[0])).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


_SCHEMAS: dict[str, Any] = {}


def _schema(kind: str) -> Mapping[str, Any]:
    if not _SCHEMAS:
        for name, document in crd.definitions().items():
            schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            _SCHEMAS[name] = schema["properties"]["spec"]
    found: Mapping[str, Any] = _SCHEMAS[kind]
    return found


def _defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    """`value` with the defaults that an API server fills in."""
    if isinstance(value, list):
        return [_defaulted(schema.get("items") or {}, each) for each in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    filled = {k: copy.deepcopy(s["default"]) for k, s in known.items() if "default" in s and k not in value}
    return {k: _defaulted(known.get(k, {}), v) for k, v in (value | filled).items()}
