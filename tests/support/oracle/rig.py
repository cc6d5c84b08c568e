"""A real registry in this process, asked over ASGI: worlds go in over its admin channel, answers come out.

No port and no thread of its own, so that hundreds of questions a second can be asked. Tokens are signed and verified
for real; the clock is set by hand; a call ends at a stand-in for the backends that says which tool was called.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from hash_embedder import HashEmbedder
from oracle import revisions, worlds
from oracle.decisions import World
from oracle.wire import published_account, published_binding, published_tool
from registry_harness import ManualClock
from toolcrib.identity import Identity, Issuer, KeySet, ScopesPolicy
from toolcrib.wire.index import IndexRequest
from toolcrib.wire.publish import (
    Publish,
    PublishedTool,
    Removed,
    Revision,
)
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.mcp import change_notices, tool_list
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.search.embedding import NullEmbedder
from toolcrib_registry.search.vectors import Embedder
from toolcrib_registry.settings import RegistrySettings

OPERATOR = "system:serviceaccount:toolcrib-system:toolcrib-operator"
_KEY = ec.generate_private_key(ec.SECP256R1())
_OURS = (b"x-request-id", b"date")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The one of that name."""
        return dict(self.headers).get(name)


@dataclass
class Backends:
    """Takes every call that the registry lets through."""

    async def call(
        self, tool: PublishedTool, arguments: CheckedArguments, request_id: str, caller: Identity, *_: object
    ) -> ToolAnswer:
        """Which tool was called."""
        raw = json.dumps({"called": tool.tool_id}).encode()
        return ToolAnswer(raw, "application/json", is_json=True)


class Stream:
    """An open watch stream; what has come so far."""

    def __init__(self) -> None:
        self.status = 0
        self.data = b""
        self.ended = False
        self.begun = asyncio.Event()
        """Set with the first event, or the end."""
        self._gone = asyncio.Event()
        self._content = b""
        self._task: asyncio.Task[None] | None = None

    def open(self, app: Any, scope: dict[str, Any], content: bytes = b"") -> None:
        """Start to read."""
        self._content = content
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def close(self) -> None:
        """Go away, as a client does."""
        self._gone.set()
        if self._task is not None:
            await asyncio.wait_for(self._task, 30)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """(type, data) of every whole event; comments are left out."""
        found = []
        for block in self.data.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if fields:
                found.append((fields["event"], json.loads(fields["data"])))
        return found

    async def _receive(self) -> dict[str, Any]:
        if self._content:
            content, self._content = self._content, b""
            return {"type": "http.request", "body": content, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.data += message.get("body", b"")
            self.ended = not message.get("more_body", False)
            if self.data or self.ended:
                self.begun.set()


class SetClock(ManualClock):
    """A clock that stands where it was set, to the last digit."""

    def set(self, moment: float) -> None:
        """Forward or back; who sleeps until then is woken. No time passes by `elapsed`."""
        self._now = moment
        self.advance(0.0)


@dataclass
class Rig:
    """One registry of one kind (`worlds.KINDS`)."""

    kind: str
    registry: Registry
    clock: SetClock
    agents: Any
    admin: Any
    epoch: int = 0
    seq: int = 0
    page: int = 3
    """Tools on a page of a list for models: worlds are small."""
    patience: float = 20.0
    """Seconds that a stream may take to show what it must; only a difference waits so long."""
    world: World | None = None
    _tokens: dict[str, str] = field(default_factory=dict)

    # ---- the world ----------------------------------------------------------------------------------------------

    async def publish(self, world: World, *, index: bool = True) -> None:
        """Put `world` in force as a full snapshot of a new leader."""
        self.epoch, self.seq = self.epoch + 1, 1
        known = world["accounts"]
        await self._send(
            Publish(
                to=Revision(epoch=self.epoch, seq=self.seq),
                tools=tuple(map(published_tool, world["tools"])),
                bindings=tuple(map(published_binding, world["bindings"])),
                accounts=None if known is None else tuple(published_account(k, known[k]) for k in known),
            )
        )
        self.world = world
        if index:
            await self.index()

    async def step(self, world: World) -> None:
        """Go on from the world in force to `world` in one step: what differs is sent."""
        before = self.world
        assert before is not None
        old_tools, new_tools = _by(before["tools"], "id"), _by(world["tools"], "id")
        old_bindings, new_bindings = _by(before["bindings"], "uid"), _by(world["bindings"], "uid")
        old_accounts, new_accounts = before["accounts"], world["accounts"]
        base = Revision(epoch=self.epoch, seq=self.seq)
        self.seq += 1
        arrived = {k: v for k, v in (new_accounts or {}).items() if (old_accounts or {}).get(k) != v}
        await self._send(
            Publish(
                base=base,
                to=Revision(epoch=self.epoch, seq=self.seq),
                tools=tuple(published_tool(t) for i, t in new_tools.items() if old_tools.get(i) != t),
                bindings=tuple(
                    published_binding(b) for i, b in new_bindings.items() if old_bindings.get(i) != b
                ),
                accounts=None
                if new_accounts is None
                else tuple(published_account(k, arrived[k]) for k in arrived),
                removed=Removed(
                    tools=tuple(old_tools.keys() - new_tools.keys()),
                    bindings=tuple(old_bindings.keys() - new_bindings.keys()),
                    accounts=tuple((old_accounts or {}).keys() - (new_accounts or {}).keys()),
                ),
            )
        )
        self.world = world

    async def index(self) -> None:
        """Bring the world's tools into the search index; those of earlier worlds stay there."""
        assert self.world is not None
        body = IndexRequest(epoch=self.epoch, upsert=tuple(t["id"] for t in self.world["tools"]))
        answer = await self.ask_admin("POST", "/v1/admin/index", body.model_dump_json().encode())
        assert answer.status == 200, answer.body

    async def _send(self, publish: Publish) -> None:
        answer = await self.ask_admin("POST", "/v1/admin/publish", publish.model_dump_json().encode())
        assert answer.status == 200, answer.body

    # ---- questions ----------------------------------------------------------------------------------------------

    def token(self, caller: Any) -> str | None:
        """What a caller of a world sends; None: nothing."""
        if caller == "anonymous":
            return None
        if caller == "garbage":
            return "garbage"
        key = json.dumps(caller, sort_keys=True)
        if key not in self._tokens:
            self._tokens[key] = sign(caller["iss"], "toolcrib", caller["claims"])
        return self._tokens[key]

    async def ask(
        self,
        method: str,
        path: str,
        caller: Any = "anonymous",
        body: Any = None,
        query: str = "",
        **headers: str,
    ) -> Answer:
        """One request on the agents' listener."""
        content = b"" if body is None else json.dumps(body).encode()
        return await _request(
            self.agents, scope_of(method, path, self.token(caller), query, headers), content
        )

    async def ask_admin(self, method: str, path: str, content: bytes) -> Answer:
        """One request on the admin listener, as the operator."""
        now = int(self.clock.now())
        claims = {"sub": OPERATOR, "iat": now - 10, "exp": now + 600}
        token = sign(worlds.CLUSTER, "toolcrib-admin", claims)
        return await _request(self.admin, scope_of(method, path, token), content)

    def watch(self, caller: Any) -> Stream:
        """Open a watch stream."""
        stream = Stream()
        stream.open(self.agents, scope_of("GET", "/v1/watch", self.token(caller)))
        return stream

    def notices(self, caller: Any, version: str | None) -> Stream:
        """Open a change stream of `/mcp/direct`: a GET in the handshake era, a request in the stateless one."""
        stream, token, path = Stream(), self.token(caller), "/mcp/direct"
        if version not in revisions.STATELESS:
            fields = {} if version is None else {"mcp-protocol-version": version}
            stream.open(self.agents, scope_of("GET", path, token, headers=fields))
            return stream
        wanted = {"notifications": {"toolsListChanged": True}}
        body, fields = revisions.request(version, "subscriptions/listen", wanted)
        stream.open(self.agents, scope_of("POST", path, token, headers=fields), json.dumps(body).encode())
        return stream


@contextlib.asynccontextmanager
async def rig(kind: str, *, embedder: Embedder | None = None, **settings: Any) -> AsyncIterator[Rig]:
    """A registry of the kind, with the embedded index; `closed` searches with vectors too, the others by words."""
    with tempfile.TemporaryDirectory() as folder:
        clock = SetClock(float(worlds.START))
        told = [
            Issuer(
                issuer=issuer["iss"],
                audience=("toolcrib",),
                algorithms=("ES256",),
                scopes=ScopesPolicy(issuer["policy"]),
                cluster=issuer["cluster"],
            )
            for issuer in worlds.issuers(kind).values()
        ]
        made = RegistrySettings(
            **{
                "issuers": tuple(told),
                "admin_subjects": (OPERATOR,),
                "discovery": {
                    "anonymous": worlds.KINDS[kind]["anonymous"],
                    "totals": worlds.KINDS[kind]["totals"],
                },
                "store": {"path": str(Path(folder) / "index")},
                "policy_max_age": 1e9,
                **settings,
            }
        )
        keys: KeySet = {issuer.issuer: {"k1": _KEY.public_key()} for issuer in told}
        outbound = OutboundHttp(EgressPolicy())
        embedder = embedder or (HashEmbedder(16) if kind == "closed" else NullEmbedder())
        registry = await build(
            made,
            clock=clock,
            keys=KeyStore(made.issuers, outbound, fixed=keys),
            backend=Backends(),
            embedder=embedder,
        )
        await registry.start()
        one = Rig(kind, registry, clock, registry.agents, registry.admin)
        try:
            # by this clock no second passes, so none is waited for between two notices
            with patch.object(tool_list, "PAGE", one.page), patch.object(change_notices, "BETWEEN", 0.0):
                yield one
        finally:
            await registry.aclose()
            await outbound.close()


def sign(issuer: str, audience: str, claims: dict[str, Any]) -> str:
    """A token as the issuer signs it."""
    return jwt.encode(
        {"iss": issuer, "aud": audience, **claims}, _KEY, algorithm="ES256", headers={"kid": "k1"}
    )


def scope_of(
    method: str, path: str, token: str | None, query: str = "", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """An ASGI scope as the server makes it."""
    raw = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if token is not None:
        raw.append((b"authorization", b"Bearer " + token.encode()))
    raw += [(k.replace("_", "-").encode(), v.encode()) for k, v in (headers or {}).items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


async def _request(app: Any, scope: dict[str, Any], content: bytes) -> Answer:
    status, headers, pieces = 0, [], []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    kept = tuple((k.decode(), v.decode()) for k, v in headers if k not in _OURS)
    return Answer(status, kept, b"".join(pieces))


def _by(items: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    return {item[key]: item for item in items}
