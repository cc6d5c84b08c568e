"""Puts a registry together from its settings.

Every part can be given instead: that is how the local mode and the tests compose it with parts of their own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from toolcrib_registry import factories, own_hosts
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.audit import setup
from toolcrib_registry.audit.refusal_reasons import RefusalReasons
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.backends.breaking import Breaking, refuses
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.kinds import Kinds
from toolcrib_registry.calls.backends.mcp.backend import McpBackend
from toolcrib_registry.calls.backends.port import ToolBackend
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.bulkheads import Bulkheads
from toolcrib_registry.calls.canaries import CanaryCounter
from toolcrib_registry.calls.confirmations import Confirmations
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.in_flight import InFlight
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.calls.validators import Validators
from toolcrib_registry.clock import Clock, SystemClock
from toolcrib_registry.deps import Deps
from toolcrib_registry.http import connection_limits
from toolcrib_registry.http.app import (
    create_admin_listener,
    create_app,
    create_metrics_listener,
    create_one_port_app,
)
from toolcrib_registry.http.connection_limits import ConnectionGate
from toolcrib_registry.identity import resources
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.identity.issuer import ClientTokens
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.identity.keys import Keys
from toolcrib_registry.importing.importer import Importer
from toolcrib_registry.importing.routes import Routes
from toolcrib_registry.limits.charge import Charging
from toolcrib_registry.limits.counters import Counters
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.offerings.lists import OfferedLists
from toolcrib_registry.offerings.updates import Updates
from toolcrib_registry.outbound.guard import ReplaceablePolicy, target
from toolcrib_registry.outbound.programs import BesidePrograms, Programs
from toolcrib_registry.policy import registration
from toolcrib_registry.policy.access_requests import AccessDesk
from toolcrib_registry.policy.outbox import OutboxQueue
from toolcrib_registry.policy.registration import Registrar
from toolcrib_registry.policy.staging import Staging
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.probing.prober import Prober
from toolcrib_registry.search.calibration import FITTED_FOR
from toolcrib_registry.search.embedding import QueryCache, identity_of
from toolcrib_registry.search.engine import SearchEngine
from toolcrib_registry.search.entries import EntryCache
from toolcrib_registry.search.index.document_vectors import DocumentVectors
from toolcrib_registry.search.index.service import IndexService
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder, VectorShelf
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.lists import Kind
from toolcrib_registry.upstream.servers import Bounds
from toolcrib_registry.watch.slots import WatchSlots

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Registry:
    """A composed registry: its ASGI apps, and what is behind them."""

    deps: Deps
    store: CatalogStore
    embedder: Embedder
    shelf: VectorShelf
    keys: Keys
    outbound: OutboundHttp
    servers: McpClient
    egress: ReplaceablePolicy
    tokens: Tokens
    owned_keys: KeyStore | None = None
    _following: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    @property
    def agents(self) -> ASGIApp:
        """The agents' listener."""
        return create_app(self.deps)

    @property
    def admin(self) -> ASGIApp:
        """The admin listener."""
        return create_admin_listener(self.deps)

    @property
    def metrics(self) -> ASGIApp:
        """The metrics listener."""
        return create_metrics_listener(self.deps)

    @property
    def one_port(self) -> ASGIApp:
        """All of them on one port."""
        return create_one_port_app(self.deps)

    def door(self, name: str) -> ConnectionGate:
        """Which connections the listener `name` keeps: `agents`, `metrics` or `admin`."""
        settings = self.deps.settings
        return connection_limits.make(
            name, settings.limits, settings.trusted_proxies, self.deps.metrics.observe_door
        )

    async def start(self, on_broken: Callable[[], None] = lambda: None) -> None:
        """Fetch keys and keep them fresh, prepare searches, cut calls that are revoked.

        An issuer that is away does not stop the start.

        Args:
            on_broken: called when calls cannot be cut any more. The registry is not ready from then on; anyone who runs
                it should end it at once.
        """
        cutting = asyncio.create_task(self.deps.in_flight.follow())
        cutting.add_done_callback(partial(self._cutting_ended, on_broken))
        self._following = [asyncio.create_task(self.deps.search.follow(self.deps.state)), cutting]
        self._following.append(asyncio.create_task(self.deps.prober.run()))
        self._following.append(asyncio.create_task(self.deps.importer.run()))
        if self.owned_keys is not None:
            await self.owned_keys.start()

    def _cutting_ended(self, on_broken: Callable[[], None], cutting: asyncio.Task[None]) -> None:
        if cutting.cancelled() or self.deps.state.closing:
            return
        log.critical("revoked calls can no longer be cut: stopping", exc_info=cutting.exception())
        self.deps.state.drain()
        on_broken()

    async def aclose(self) -> None:
        """End streams and threads, close clients and files."""
        self.deps.state.close()
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        if self.owned_keys is not None:
            await self.owned_keys.close()
        self.deps.search.close()
        await self.tokens.close()
        await self.deps.offered.close()
        await self.deps.updates.close()
        await self.servers.close()
        await self.outbound.close()
        await self.deps.limits.counters.aclose()
        await self.store.aclose()
        await self.shelf.aclose()
        await self.embedder.aclose()
        self.deps.refusals.settle()
        self.deps.decisions.close()


async def build(
    settings: RegistrySettings,
    *,
    clock: Clock | None = None,
    keys: Keys | None = None,
    store: CatalogStore | None = None,
    embedder: Embedder | None = None,
    backend: ToolBackend | None = None,
    counters: Counters | None = None,
    registrar: Registrar | None = None,
    desk: AccessDesk | None = None,
    oauth: ClientTokens | None = None,
    remedies: Remedies = CLUSTER,
    declared: Callable[[], Collection[str]] | None = None,
    programs: Programs | None = None,
    metrics_registry: CollectorRegistry | None = None,
) -> Registry:
    """A registry of `settings`; what is passed takes the place of what would be made.

    Raises:
        ValueError: the settings contradict themselves.
        EmbedderUnavailable, StoreUnavailable: a local part cannot start.
    """
    clock = clock or SystemClock()
    policy = ReplaceablePolicy(
        own_hosts.policy(settings.egress, settings.store, settings.counters, settings.backends)
    )
    if programs is not None:
        policy.current = replace(policy.current, programs=programs.allowed)
    outbound = OutboundHttp(policy)
    owned_keys = None
    if keys is None:
        keys = owned_keys = KeyStore(settings.issuers, outbound)
    model = embedder or factories.embedder(settings.embedder)
    if model.dimension and model.name != FITTED_FOR:
        log.warning(
            "confidence is calibrated for another embedder than %s, so it is only indicative; see "
            "docs/guides/search.md",
            model.name,
        )
    shelf = factories.shelf(settings.embedder, None if store else settings.store)
    store = store or await factories.store(settings.store, identity_of(model))
    state = PolicyState(
        clock,
        replica=settings.replica,
        policy_max_age=settings.policy_max_age,
        anonymous_list=settings.discovery.anonymous == "list",
        view_bytes=settings.limits.view_bytes,
    )
    keys.on_change(state.wake)  # what was let in by a key that is gone looks again
    metrics = Metrics(
        metrics_registry or CollectorRegistry(),
        agents=settings.limits.metric_agents,
        tools=settings.limits.metric_tools,
        grants=settings.limits.metric_grants,
        pairs=settings.limits.metric_pairs,
        full=settings.metrics.reasons == "full",
        snapshot=lambda: state.snapshot,
        clock=clock.now,
    )
    staging = Staging(state, most=settings.limits.admin_body_bytes)
    large = LargeRequests()
    validators = Validators(settings.limits.validator_bytes, metrics.validators_evicted.inc)
    _observe(metrics, state)
    metrics.observe_held(staged=lambda: staging.size, validators=lambda: validators.size)
    embedder = QueryCache(
        model,
        on_embedded=metrics.query_embedded.inc,
        on_reused=metrics.query_reused.inc,
        on_failed=metrics.embed_failed,
    )
    decisions = setup.opened(settings.audit, settings.replica, clock, metrics.audit, settings.issuers)
    state.audit_head = lambda: decisions.head
    canaries = CanaryCounter()
    state.canaries = canaries.counts
    state.on_swap = decisions.policy_changed
    credentials = CredentialStore()
    assertions = factories.assertions(settings, clock)
    bounds = Bounds(
        request_bytes=settings.limits.mcp_request_bytes, answer_bytes=settings.limits.mcp_answer_bytes
    )
    servers = McpClient(outbound if programs is None else BesidePrograms(outbound, programs), bounds)
    entries = EntryCache()
    searcher = Searcher(
        store,
        embedder,
        embed_seconds=settings.embedder.query_seconds,
        clock=time.monotonic,
        resident_bytes=settings.search.resident_bytes,
    )
    engine = SearchEngine(searcher, entries, clock)
    admin = settings.admin_issuer_settings
    limits = settings.limits
    outbox = OutboxQueue(state, within=limits.registration_seconds, capacity=limits.registrations)
    bulkheads = Bulkheads(each=settings.limits.backend_calls)
    metrics.observe_calls(in_progress=lambda: bulkheads.in_progress, waiting=lambda: bulkheads.waiting)
    breakers = Breakers(
        failures=settings.limits.breaker_failures,
        open_seconds=settings.limits.breaker_seconds,
        on_open=metrics.breaker_opened.inc,
    )
    metrics.observe_breakers(lambda: breakers.open)
    tokens = Tokens(
        outbound, policy, credentials, breakers=breakers, now=clock.now, observe=metrics.token_requested
    )
    keys.on_change(tokens.forget_callers)
    issuers = {issuer.issuer: issuer for issuer in settings.issuers}
    prober = Prober(
        lambda: state.snapshot,
        lambda asked, namespace: target(asked, namespace=namespace, policy=policy.current),
        outbound,
        clock,
        rules=lambda: policy.current,
        observe=metrics.probed,
    )
    metrics.observe_backends(prober.counts)
    shared: dict[str, Any] = {
        "assertions": assertions,
        "tokens": tokens,
        "issuers": issuers,
        "large": large,
        "remedies": remedies,
    }
    of_servers = McpBackend(servers, credentials, policy, **shared)
    offered = OfferedLists(of_servers.requests, breakers, large, time.monotonic)
    importer = Importer(
        servers,
        Routes(policy, credentials, assertions, settings.assertion_issuer, tokens, remedies),
        clock,
        metrics.servers,
        bounds=bounds,
    )

    def list_changed(server: str, kind: Kind) -> None:
        if kind is not Kind.TOOLS:
            offered.changed(server, kind)
            state.wake()

    importer.on_change = list_changed
    counters = counters or factories.counters(settings.counters, clock)
    confirmations = Confirmations(
        counters,
        assertions.keys,
        clock.now,
        metrics.confirmation,
        shared=settings.counters.kind != "memory",
        several=settings.counters.several,
    )
    metrics.observe_confirmations(lambda: len(confirmations.waiting()))
    deps = Deps(
        settings=settings,
        clock=clock,
        state=state,
        agents=Authenticator(settings.issuers, keys, clock),
        admin=None if admin is None else Authenticator((admin,), keys, clock),
        search=engine,
        index=IndexService(
            store, DocumentVectors(embedder, shelf, store), state, entries, metrics, clock, engine.learn
        ),
        arguments=Arguments(validators=validators, large=large),
        backend=backend
        or Breaking(
            Kinds(HttpBackend(outbound, credentials, policy, **shared), of_servers),
            breakers,
        ),
        assertions=assertions,
        limits=Charging(
            counters,
            metrics,
            clock,
            agent_calls=settings.limits.agent_calls,
        ),
        bulkheads=bulkheads,
        confirmations=confirmations,
        in_flight=InFlight(state, clock, metrics.cut),
        canaries=canaries,
        credentials=credentials,
        metrics=metrics,
        streams=WatchSlots(
            metrics, most=settings.limits.watch_streams, each=settings.limits.watch_streams_per_subject
        ),
        decisions=decisions,
        refusals=RefusalReasons(metrics, decisions, clock),
        staging=staging,
        large=large,
        registrar=(registrar or outbox) if settings.registration else None,
        outbox=outbox,
        desk=desk or outbox,
        check_address=registration.address_check(policy),
        prober=prober,
        importer=importer,
        offered=offered,
        updates=Updates(of_servers.requests),
        is_down=lambda tool: state.cannot_reach(tool) or refuses(breakers, tool),
        oauth=oauth,
        declared=declared,
        resources=resources.make(
            settings.own_url,
            settings.issuers,
            keys,
            clock,
            authorization_servers=settings.authorization_servers,
            scopes=settings.oauth.scopes_supported,
        ),
    )
    return Registry(deps, store, embedder, shelf, keys, outbound, servers, policy, tokens, owned_keys)


def _observe(metrics: Metrics, state: PolicyState) -> None:
    def age() -> float:
        known = state.policy_age()
        return math.nan if known is None else known

    metrics.observe_state(
        catalog=lambda: state.snapshot.active_tools,
        bindings=lambda: len(state.snapshot.bindings),
        epoch=lambda: state.snapshot.revision.epoch if state.snapshot.revision else 0,
        seq=lambda: state.snapshot.revision.seq if state.snapshot.revision else 0,
        age=age,
    )
