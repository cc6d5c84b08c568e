"""The operator process: composition, and the order in which things start and end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import aiohttp

from toolcrib import process
from toolcrib.errors import EpochFenced
from toolcrib.telemetry import logs, tracing
from toolcrib_operator import allocator, options
from toolcrib_operator.adapters.anchors import KubeAnchors
from toolcrib_operator.adapters.applier import KubeApplier
from toolcrib_operator.adapters.calls import KubeCalls
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.adapters.endpoints import ServiceReplicas, UrlReplicas
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.adapters.leases import KubeLease
from toolcrib_operator.adapters.replica_http import HttpReplica, connector
from toolcrib_operator.adapters.trust import Trust
from toolcrib_operator.adapters.workloads import KubeWorkloads
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.elector import Elector
from toolcrib_operator.errors import ClusterUnavailable
from toolcrib_operator.health import serving
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.model_key import MODEL_KEY
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.metrics import Propagated
from toolcrib_operator.ports import Replicas
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.replicas.confirmations import CallConfirmations
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.registrations import RegistrationIntake
from toolcrib_operator.replicas.servers import ServerReports
from toolcrib_operator.settings import AgentSettings, OperatorSettings, RegistrationSettings
from toolcrib_operator.state import Leading, State
from toolcrib_operator.uninstall import release
from toolcrib_operator.watches.recorder import Memo, watch
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.workloads.keeper import Keeper
from toolcrib_operator.world import World

log = logging.getLogger("toolcrib_operator")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `toolcrib-operator`. Exit codes: 0 asked to stop, 1 leadership lost or a failure, 2 usage."""
    settings = options.parse(argv, os.environ)
    allocator.give_back()
    try:
        logs.configure(os.environ)
    except ValueError as error:
        print(f"toolcrib-operator: {error}", file=sys.stderr)
        sys.exit(2)
    tracing.start(os.environ, "toolcrib-operator", _tracer)
    try:
        code = asyncio.run(uninstall(settings) if settings.release_finalizers else serve(settings))
    except ClusterUnavailable as error:
        log.error("the operator cannot run: %s", error)
        code = 1
    finally:
        tracing.close()
    sys.exit(code)


def _tracer(service: str) -> tracing.Tracer:
    """OpenTelemetry's; imported only where traces are asked for."""
    from toolcrib.telemetry import otel

    return otel.tracer(service)


async def serve(settings: OperatorSettings) -> int:
    """Stand by, lead when elected, until SIGTERM or SIGINT. Returns the exit code."""
    stop = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    kube = Kube(settings.kubeconfig)
    election = settings.election
    # a request that hangs must leave time for another before the renew deadline
    leases = KubeLease(kube, election.namespace, election.name, timeout=max(1.0, election.renew / 3))
    elector = Elector(leases, settings.identity, settings=election)
    state, propagated = State(elector), Propagated()
    try:
        async with process.looked_after(), serving(state, propagated, settings.host, settings.port) as port:
            log.info(
                "%s serves /healthz, /readyz and /metrics on %s:%d", settings.identity, settings.host, port
            )
            if not await elector.acquire(stop):
                return 0
            elector.guard(_lost)
            failed = await _lead(settings, kube, elector, state, propagated, stop)
            await elector.release()
            return 1 if failed else 0
    finally:
        kube.close()


async def uninstall(settings: OperatorSettings) -> int:
    """Remove our finalizer from every binding. Returns the exit code."""
    kube = Kube(settings.kubeconfig)
    election = settings.election
    try:
        leases = KubeLease(kube, election.namespace, election.name)
        cluster = Cluster(kube)
        number = await release(cluster, cluster, leases, election=election, identity=settings.identity)
        log.info("removed the finalizer from %d bindings", number)
        return 0
    finally:
        kube.close()


async def _lead(
    settings: OperatorSettings,
    kube: Kube,
    elector: Elector,
    state: State,
    propagated: Propagated,
    stop: asyncio.Event,
) -> bool:
    """Work as leader until `stop`; whether it ended for another reason."""
    agents = settings.loop.agents or AgentSettings()
    namespaces = {SECRET: settings.loop.credential_namespaces, MODEL_KEY: agents.namespaces}
    polled = [kind for kind, within in namespaces.items() if within]
    world = World([*WATCHED, *polled])
    cluster = Cluster(
        kube,
        credential_namespaces=settings.loop.credential_namespaces,
        agent_namespaces=agents.namespaces,
        as_entries=True,
    )
    resync = Resync(world, cluster, polled=polled, settings=settings.watch)
    async with aiohttp.ClientSession(
        connector=connector(), trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        make = _maker(settings, session)
        publisher = Publisher(
            elector.epoch,
            _replicas(settings, kube, make),
            settings=settings.publisher,
            may_act=elector.valid,
            proven=resync.proven,
            age=resync.age,
            on_fenced=_fenced,
        )
        index_sync = IndexSync(publisher, settings=settings.index)
        watched = settings.policies is not None
        policies = Policies(
            Admitted(external=not watched), cluster if watched else None, settings=settings.policies
        )
        probes = None if settings.probes is None else ProbeReports(publisher, make, settings=settings.probes)
        imports = Imports(world, publisher, ServerReports(publisher, make), applier := KubeApplier(kube))
        keeper = Keeper(
            world,
            KubeWorkloads(kube),
            agents,
            may_act=lambda: publisher.may_act(),
            snapshot=lambda: publisher.snapshot,
        )
        loop = Loop(
            world, publisher, index_sync, cluster, settings=settings.loop, policies=policies, probes=probes, imports=imports,
            workloads=keeper if agents.namespaces else None, on_propagated=propagated.observe,
        )  # fmt: skip
        desk = AccessRequests(world, publisher, cluster, applier, decided=propagated.decided)
        intake = RegistrationIntake(
            world, publisher, cluster, make, loop.published, settings=settings.registration or RegistrationSettings(),
            registers=settings.registration is not None, desk=desk,
        )  # fmt: skip
        confirming = CallConfirmations(publisher, make, KubeCalls(kube), policies)
        anchoring = _anchoring(settings, kube, publisher)
        state.leading = Leading(
            world, resync, publisher, index_sync, loop, intake, desk, anchoring, probes, imports
        )
        tasks = [
            asyncio.create_task(loop.run(stop), name="loop"),
            asyncio.create_task(elector.keep(stop), name="lease"),
            asyncio.create_task(_watch(kube, world, resync, stop), name="watch"),
            asyncio.create_task(intake.run(stop), name="outbox"),
            asyncio.create_task(desk.run(stop), name="access requests"),
        ]
        # whatever becomes of these, grants and revocations go on
        beside = [asyncio.create_task(confirming.run(stop), name="confirmations")]
        if anchoring is not None:
            beside.append(asyncio.create_task(anchoring.run(stop), name="anchors"))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = not stop.is_set()
        stop.set()
        for task in done:
            if failed:
                log.error("%s ended", task.get_name(), exc_info=task.exception())
        await asyncio.gather(*tasks, *beside, return_exceptions=True)
        return failed


async def _watch(kube: Kube, world: World, resync: Resync, stop: asyncio.Event) -> None:
    """List everything, then have kopf watch it, and prove its watches."""
    if not await resync.list_all(stop):
        return
    ended, halt = asyncio.Event(), threading.Event()
    running = asyncio.get_running_loop()

    def run() -> None:
        try:
            watch(kube, Memo(world, resync), halt)
        except Exception:
            log.exception("kopf ended")
        finally:
            running.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="kopf", daemon=True).start()
    proving = asyncio.create_task(resync.run(stop))
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(ended.wait())]
    try:
        await asyncio.wait([*waits, proving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        halt.set()
        for task in (*waits, proving):
            task.cancel()
        results = await asyncio.gather(*waits, proving, return_exceptions=True)
    if isinstance(results[-1], Exception):
        raise results[-1]


def _anchoring(settings: OperatorSettings, kube: Kube, publisher: Publisher) -> Anchoring | None:
    anchors = settings.anchors
    if anchors is None:
        return None
    store = KubeAnchors(kube, settings.election.namespace, anchors.name)
    return Anchoring(store, publisher.audit_heads, may_act=publisher.still_leads, settings=anchors)


def _maker(settings: OperatorSettings, session: aiohttp.ClientSession) -> Callable[[str], HttpReplica]:
    """The admin channel of a replica, by its URL."""
    trust = Trust(settings.registry_ca, settings.registry_server_name)

    def make(url: str) -> HttpReplica:
        return HttpReplica(url, session, token_file=settings.token_file, trust=trust)

    return make


def _replicas(settings: OperatorSettings, kube: Kube, make: Callable[[str], HttpReplica]) -> Replicas:
    if settings.registry_service is None:
        return UrlReplicas(settings.registry_urls, make)
    port, scheme = settings.registry_port, settings.registry_scheme
    return ServiceReplicas(kube, settings.registry_service, port, make, scheme=scheme)


def _lost() -> None:
    """The Lease may be another's: end before anything else can be done, without cleaning up."""
    log.critical("leadership can no longer be confirmed: stopping")
    logging.shutdown()
    os._exit(1)


def _fenced(error: EpochFenced) -> None:
    log.critical("another operator leads and has published: %s", error)
    logging.shutdown()
    os._exit(1)


if __name__ == "__main__":
    main()
