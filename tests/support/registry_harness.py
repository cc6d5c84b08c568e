"""The real registry on real loopback ports, in a thread of its own: tests speak to it over HTTP only.

    with running_registry(tools=[tool("calculator")], bindings=[binding("bot")]) as r:
        httpx.get(r.url, headers=r.auth("team", "bot"))

Tools and bindings are published over the admin channel, as an operator does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

import published
from served import served
from toolcrib.identity import Issuer, KeySet, ScopesPolicy
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import (
    Heartbeat,
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
    Removed,
    ReplicaState,
    Revision,
)
from toolcrib_registry import compose
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.adapters.weaviate import connection
from toolcrib_registry.calls.backends.port import ToolBackend
from toolcrib_registry.clock import Clock
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.identity.issuer import ClientTokens
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.policy.registration import Registrar
from toolcrib_registry.search.embedding import NullEmbedder
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.vectors import Embedder
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import Store

ISSUER = "https://issuer.test"
OPERATOR = "system:serviceaccount:toolcrib-system:toolcrib-operator"
_KEY = ec.generate_private_key(ec.SECP256R1())
_T = TypeVar("_T")


def mint(
    subject: str, *, ttl: float = 3600.0, audience: str = "toolcrib", now: float | None = None, **claims: Any
) -> str:
    """A token of the harness's issuer; `scope="a b"` makes the token's scopes decide, without it bindings do."""
    issued = time.time() if now is None else now
    payload = {"iss": ISSUER, "aud": audience, "sub": subject, "iat": issued, "exp": issued + ttl, **claims}
    return jwt.encode(payload, _KEY, algorithm="ES256", headers={"kid": "k1"})


def keyset() -> KeySet:
    """The issuer's public key."""
    return {ISSUER: {"k1": _KEY.public_key()}}


def tool(
    name: str, *, namespace: str = "team", object_name: str | None = None, **fields: Any
) -> PublishedTool:
    """A published tool with scope `<name>:use`, unless `scopes` says otherwise; no backend unless given."""
    tool_id = f"{namespace}/{object_name or name.lower().replace('_', '-')}"
    defaults = {"name": name, "generation": 1, "description": f"The tool {name}.", "scopes": (f"{name}:use",)}
    return published.tool(tool_id, **{**defaults, **fields})


def binding(
    account: str,
    scopes: Sequence[str] = ("calculator:use",),
    *,
    namespace: str | None = "team",
    account_namespace: str = "team",
    name: str | None = None,
    **fields: Any,
) -> PublishedBinding:
    """A binding for one service account; `namespace=None` makes a cluster binding over every namespace."""
    name = name or account
    defaults = {
        "uid": f"uid-{namespace}-{name}",
        "generation": 1,
        "subjects": (published.account(account_namespace, account),),
        "scopes": tuple(scopes),
    }
    return published.binding(name, namespace, **{**defaults, **fields})


def backend(port: int, path: str = "/", **fields: Any) -> PublishedBackend:
    """A URL on loopback; the harness opens loopback to calls."""
    return PublishedBackend(url=f"http://127.0.0.1:{port}{path}", **fields)


class ManualClock:
    """A clock that stands still until it is moved; may be moved from any thread."""

    def __init__(self, start: float | None = None) -> None:
        self._now = time.time() if start is None else start
        self._elapsed = 0.0
        self._lock = threading.Lock()
        self._sleepers: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Event]] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def elapsed(self) -> float:
        """Seconds by which it was moved on."""
        return self._elapsed

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._now += seconds

    async def sleep_until(self, moment: float) -> None:
        """Return once the clock has been moved to `moment`."""
        event = asyncio.Event()
        with self._lock:
            if moment <= self._now:
                return
            self._sleepers.append((moment, asyncio.get_running_loop(), event))
        await event.wait()

    def advance(self, seconds: float) -> None:
        """Move on, and wake who waits for that."""
        with self._lock:
            self._now += seconds
            self._elapsed += seconds
            due = [s for s in self._sleepers if s[0] <= self._now]
            self._sleepers = [s for s in self._sleepers if s[0] > self._now]
        for _, loop, event in due:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)


class RunningRegistry:
    """A registry that answers at `url` (agents), `admin_url` and `metrics_url`."""

    def __init__(self, registry: Registry, loop: asyncio.AbstractEventLoop, clock: Clock | None) -> None:
        self.registry = registry
        self.url = ""
        self.admin_url = ""
        self.metrics_url = ""
        self.http = httpx.Client(timeout=60, verify=False)
        """A client for all listeners; httpx.get would load the system's certificates each time."""
        self._loop = loop
        self._clock = clock
        self._revision: Revision | None = None

    def token(
        self,
        namespace: str,
        name: str,
        *,
        ttl: float = 3600.0,
        scopes: str | None = None,
        uid: str | None = None,
        **claims: Any,
    ) -> str:
        """A token of the service account; with `scopes`, they alone decide; with `uid`, it names the object."""
        if scopes is not None:
            claims["scope"] = scopes
        if uid is not None:
            account = {"name": name, "uid": uid}
            claims["kubernetes.io"] = {"namespace": namespace, "serviceaccount": account}
        now = self._clock.now() if self._clock else None
        return mint(f"system:serviceaccount:{namespace}:{name}", ttl=ttl, now=now, **claims)

    def auth(self, namespace: str, name: str, **options: Any) -> dict[str, str]:
        """The Authorization header of `token`."""
        return {"Authorization": f"Bearer {self.token(namespace, name, **options)}"}

    def admin_auth(self, subject: str = OPERATOR, audience: str = "toolcrib-admin") -> dict[str, str]:
        """The Authorization header of the operator."""
        now = self._clock.now() if self._clock else None
        return {"Authorization": f"Bearer {mint(subject, audience=audience, now=now)}"}

    def publish(
        self,
        tools: Sequence[PublishedTool] = (),
        bindings: Sequence[PublishedBinding] = (),
        *,
        accounts: Sequence[PublishedAccount] | None = None,
        servers: Sequence[PublishedServer] = (),
        remove_tools: Sequence[str] = (),
        remove_bindings: Sequence[str] = (),
        remove_accounts: Sequence[str] = (),
        remove_servers: Sequence[str] = (),
    ) -> ReplicaState:
        """Publish one step (the first is a full snapshot) over the admin channel."""
        base = self._revision
        to = Revision(epoch=1, seq=1) if base is None else Revision(epoch=base.epoch, seq=base.seq + 1)
        step = Publish(
            base=base,
            to=to,
            tools=tuple(tools),
            bindings=tuple(bindings),
            accounts=None if accounts is None else tuple(accounts),
            servers=tuple(servers),
            removed=Removed(
                tools=tuple(remove_tools),
                servers=tuple(remove_servers),
                bindings=tuple(remove_bindings),
                accounts=tuple(remove_accounts),
            ),
        )
        answer = self.admin("POST", "/v1/admin/publish", content=step.model_dump_json())
        assert answer.status_code == 200, answer.text
        self._revision = to
        return ReplicaState.model_validate(answer.json())

    def heartbeat(self, *unreachable: str) -> httpx.Response:
        """Beat once with what the replica itself reports. `unreachable` are places of backends."""
        state = ReplicaState.model_validate(self.admin("GET", "/v1/admin/state").json())
        assert state.revision is not None
        beat = Heartbeat(revision=state.revision, hash=state.hash, unreachable=unreachable)
        return self.admin("POST", "/v1/admin/heartbeat", content=beat.model_dump_json())

    def admin(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request to the admin listener, as the operator."""
        headers = {**self.admin_auth(), "content-type": "application/json", **options.pop("headers", {})}
        return self.http.request(method, self.admin_url + path, headers=headers, **options)

    def metrics(self) -> str:
        """What `/metrics` says now."""
        answer = self.http.get(self.metrics_url + "/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text

    def on_loop(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run `work` on the registry's own event loop."""

        async def run() -> _T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=60)


@contextlib.contextmanager
def running_registry(
    tools: Sequence[PublishedTool] = (),
    bindings: Sequence[PublishedBinding] = (),
    *,
    publish: bool = True,
    clock: Clock | None = None,
    backend: ToolBackend | None = None,
    embedder: Embedder | None = None,
    registrar: Callable[[Registry], Registrar] | None = None,
    token_endpoint: ClientTokens | None = None,
    one_port: bool = False,
    extra_keys: KeySet | None = None,
    patient: bool = False,
    **settings: Any,
) -> Iterator[RunningRegistry]:
    """A registry with the embedded store and no embedder (unless given), `tools` and `bindings` published.

    Args:
        publish: False: nothing is published, the registry is not ready.
        registrar: makes a Registrar for the composed registry; registration is on then.
        extra_keys: keys of issuers besides the harness's own; name them in `issuers`.
        patient: searches wait for store and embedder as long as they need: for tests of what is answered, not of when.
        settings: fields of `RegistrySettings` that differ from the harness's.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        made = RegistrySettings(
            **{
                "issuers": (
                    Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True),
                ),
                "admin_subjects": (OPERATOR,),
                "store": Store(path=str(Path(folder) / "index")),
                "egress": {"loopback": True},
                "registration": registrar is not None,
                **settings,
            }
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=loop.run_forever, name=f"registry-{uuid.uuid4().hex[:6]}", daemon=True
        )
        thread.start()

        def on_loop(work: Awaitable[_T]) -> _T:
            async def run() -> _T:
                return await work

            return asyncio.run_coroutine_threadsafe(run(), loop).result(timeout=60)

        def stop_loop() -> None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=60)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

        stack.callback(stop_loop)
        late = _Late(registrar)
        outbound = OutboundHttp(EgressPolicy())
        stack.callback(lambda: on_loop(outbound.close()))
        keys = KeyStore(made.issuers, outbound, fixed={**keyset(), **(extra_keys or {})})
        with _patience() if patient else contextlib.nullcontext():
            registry = on_loop(
                build(
                    made,
                    clock=clock,
                    keys=keys,
                    backend=backend,
                    embedder=embedder or NullEmbedder(),
                    registrar=late if registrar else None,
                    oauth=token_endpoint,
                )
            )
        late.bind(registry)
        stack.callback(lambda: on_loop(registry.aclose()))
        on_loop(registry.start())
        running = RunningRegistry(registry, loop, clock)
        stack.callback(running.http.close)
        apps = [registry.one_port] if one_port else [registry.agents, registry.metrics, registry.admin]
        urls = stack.enter_context(served(apps, registry, loop))
        running.url, running.metrics_url, running.admin_url = urls * 3 if one_port else urls
        if publish:
            running.publish(tools, bindings)
        yield running


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """What is composed within has deadlines that a busy machine keeps."""
    on_weaviate = connection.WeaviateSettings

    def searcher(*given: Any, **options: Any) -> Searcher:
        return Searcher(*given, **{**options, "store_seconds": 30.0, "embed_seconds": 30.0})

    unhurried = partial(on_weaviate, search_seconds=25.0)
    with (
        mock.patch.object(compose, "Searcher", searcher),
        mock.patch.object(connection, "WeaviateSettings", unhurried),
    ):
        yield


class _Late:
    """A registrar that is made once the registry is there."""

    def __init__(self, make: Callable[[Registry], Registrar] | None) -> None:
        self._make = make
        self._real: Registrar | None = None

    def bind(self, registry: Registry) -> None:
        self._real = self._make(registry) if self._make else None

    async def register(self, tool: PublishedTool, allowed: Callable[[], bool]) -> None:
        assert self._real is not None
        await self._real.register(tool, allowed)
