"""`toolcrib up`: the local mode's composition root. One process, one loopback port, one private folder.

The operator's World and loop, the registry with the embedded index and a local issuer, and the example tools: the
same code as in a cluster, joined by in-process ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from toolcrib import process
from toolcrib.authorizer import granted_scopes
from toolcrib.errors import SettingsInvalid
from toolcrib.identity import Identity, KeySet
from toolcrib.resources.quantities import Quota
from toolcrib.resources.servers import ToolServer
from toolcrib.wire.backends import SecretReference
from toolcrib.wire.publish import Revision
from toolcrib_cli import example_tools
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local import demo
from toolcrib_cli.local.access import LocalAccess
from toolcrib_cli.local.api_docs import ApiDocs
from toolcrib_cli.local.approvals import FILE as APPROVALS
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.calls import Calls
from toolcrib_cli.local.conditions import Conditions
from toolcrib_cli.local.decisions import Decisions
from toolcrib_cli.local.folders import Change, Folders
from toolcrib_cli.local.hosts import FILE, Hosts, HostsFile, LocalHosts, LocalRemedies
from toolcrib_cli.local.imported import ImportedTools
from toolcrib_cli.local.kept_imports import FILE as IMPORTED
from toolcrib_cli.local.kept_imports import KeptImports
from toolcrib_cli.local.objects import Objects
from toolcrib_cli.local.programs.outbound import LocalPrograms
from toolcrib_cli.local.registrations import Registrations
from toolcrib_cli.local.replica import InProcessReplica
from toolcrib_cli.local.report import Report
from toolcrib_cli.local.settings import Options, settings_of, told
from toolcrib_cli.local.store import ACCESS, AGENTS, Store
from toolcrib_cli.local.tour import Tour
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.kinds.facts import SERVER
from toolcrib_operator.kinds.secret import SECRET, secret_value
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.servers import ServerReports
from toolcrib_operator.settings import IndexSettings, LoopSettings, ProbeSettings
from toolcrib_operator.world import World
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.http import serving
from toolcrib_registry.http.host_rules import HostRules
from toolcrib_registry.identity.issuer import ClientTokens, IssuerError, LocalIssuer
from toolcrib_registry.search.errors import SearchError
from toolcrib_registry.settings import RegistrySettings

HOSTS_SECONDS = 0.5
"""Between two looks at the hosts file."""
IMPORTS_WITHIN = 1.0
"""Seconds that the start waits for lists of ToolServers; the others come later."""
_PROBES = ProbeSettings(every=15, ask=1, writes=1_000)
"""Services under development start and stop: four times as often as in a cluster."""


def run(options: Options) -> None:
    """Run until Ctrl-C or SIGTERM.

    Raises:
        CliError: it cannot start; nothing is left behind.
    """
    if options.embedder not in ("packaged", "none") and not Path(options.embedder).is_dir():
        raise CliError(
            f"--embedder: packaged, none or a folder with a model, not {options.embedder!r}", code=Exit.USAGE
        )
    store = Store.open(options.data)
    try:
        if options.demo:
            shown = demo.written(store.path(demo.FOLDER))
            options = replace(options, manifests=(*options.manifests, shown))
        uvloop.run(_up(options, store))
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        raise CliError(
            str(error.strerror or error) + ("" if error.filename is None else f": {error.filename}"),
            hint="choose another --port (0 takes a free one)" if taken and error.filename is None else "",
        ) from error
    except (SettingsInvalid, SearchError, IssuerError, ValueError) as error:
        raise CliError(str(error)) from error
    finally:
        store.close()


async def _up(options: Options, store: Store) -> None:
    stop = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, _interrupted, stop)
    report = Report(options.data, hybrid=options.embedder != "none")
    report.starting(options.manifests)
    world = World(condense=False)
    approvals = Approvals(store.path(APPROVALS))
    store.path(AGENTS).mkdir(mode=0o700, exist_ok=True)
    access = LocalAccess(store.path(ACCESS), world)
    folders = Folders(
        (*options.manifests, store.path("registrations"), store.path(AGENTS), store.path(ACCESS)),
        world,
        hidden=options.hidden_text,
        approvals=approvals,
    )
    issuer = LocalIssuer.open(store.path("issuer"))
    async with contextlib.AsyncExitStack() as stack:
        bound = serving.Listener(_nothing, "127.0.0.1", options.port).bind()
        stack.callback(bound.close)
        port = int(bound.getsockname()[1])
        url = f"http://127.0.0.1:{port}"
        assertions = example_tools.CallAssertions(
            url, example_tools.keys_at(url + example_tools.JWKS_PATH), ["*"]
        )
        tools = await stack.enter_async_context(
            example_tools.serving(port=0, data_dir=store.path("example-tools"), assertions=assertions)
        )
        loaded = await asyncio.to_thread(folders.load)
        report.loaded(folders, loaded)
        report.first_used(await asyncio.to_thread(approvals.save))
        report.backends(options.backends, folders.backends)
        hosts = LocalHosts(
            Hosts(options.allow_hosts, options.backends), HostsFile(store.path(FILE)), str(tools)
        )
        report.hosts(hosts.file, lambda: folders.backends)
        settings = settings_of(options, store, issuer, port, hosts.effective(folders.services))
        judging = LoopSettings(
            finalizers=False,
            accounts=False,
            services=False,
            hidden_text=options.hidden_text,
            trusted_namespace_labels=options.trusted_labels or LoopSettings.trusted_namespace_labels,
            quota=Quota(*options.quota),
            programs=options.allow_stdio,
            # there is no API server to spare
            hold_back=0.5,
            rewrite_every=1.0,
        )
        conditions = Conditions(folders, world)
        imported = ImportedTools(world, folders, approvals, lambda ref: writer.forget(ref))
        kept = KeptImports(store.path(IMPORTED), world)
        await asyncio.to_thread(imported.restore, kept)

        def wrote(ref: Ref) -> None:
            imported.wrote(ref)
            conditions.wrote(ref)

        writer = MemoryWriter(world, wrote)
        programs = LocalPrograms(
            options.allow_stdio,
            store.path("stdio"),
            os.environ.get("PATH", os.defpath),
            lambda reference: value_of(world, reference),
        )
        stack.push_async_callback(programs.aclose)
        loop, registry = await _compose(
            settings,
            store,
            world,
            folders,
            issuer,
            stack,
            stop.set,
            judging,
            writer,
            imported,
            programs,
            access,
        )
        conditions.tell, conditions.imported = loop.told, imported.item_of
        imported.tell = loop.told
        conditions.pending = lambda: imported.pending
        store.told = told(options, store, settings, hosts.effective(folders.services))
        store.write_state(f"http://127.0.0.1:{port}", folders.accounts)
        local = _Local(
            options,
            store,
            folders,
            hosts,
            world,
            loop,
            registry,
            issuer,
            report,
            conditions,
            Objects(
                world,
                folders,
                writer,
                store.key,
                HostRules(registry.deps.settings),
                approvals,
                Decisions(world, folders, approvals, imported, loop.published),
                Calls(registry.deps.confirmations),
                imported,
            ),
            ApiDocs(HostRules(registry.deps.settings)),
            approvals,
            imported,
            kept,
            programs,
            access,
            stop,
            port,
            str(tools.url),
            loaded,
        )
        await local.run(bound)
    report.stopped()


@dataclass(slots=True)
class _Local:
    """Everything that runs until `stop`."""

    options: Options
    store: Store
    folders: Folders
    hosts: LocalHosts
    world: World
    loop: Loop
    registry: Registry
    issuer: LocalIssuer
    report: Report
    conditions: Conditions
    objects: Objects
    api_docs: ApiDocs
    approvals: Approvals
    imported: ImportedTools
    kept: KeptImports
    programs: LocalPrograms
    access: LocalAccess
    stop: asyncio.Event
    port: int
    tools_url: str
    loaded: Change

    async def run(self, bound: socket.socket) -> None:
        """Serve, follow the folders, and say what happens."""
        async with process.looked_after(), asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(self.stop))
            watching = [
                group.create_task(each)
                for each in (
                    self._follow(),
                    self._follow_hosts(),
                    self._introduce(),
                    self.imported.run(),
                    self.access.run(self.stop),
                )
            ]
            await serving.serve(
                [
                    serving.Listener(
                        self.api_docs.beside(self.objects.beside(self.registry.one_port)),
                        "127.0.0.1",
                        self.port,
                        bound=bound,
                        door=self.registry.door("agents"),
                    )
                ],
                stopping=self.registry.deps.state.close,
                stop=self.stop,
                signals=False,
            )
            self.stop.set()
            # a stop during the start leaves them waiting for what never comes
            for task in watching:
                task.cancel()

    async def _introduce(self) -> None:
        await self.loop.published(self.loaded.number)
        await self.imported.settled(IMPORTS_WITHIN, self.stop)
        await self.loop.published(self.world.change)
        url = f"http://127.0.0.1:{self.port}"
        facts = self.loop.assessor.facts
        self.report.refused(facts.quotas)
        await self.report.conditions(self.folders, self.conditions, facts.records)
        self.report.healthy(url, self.tools_url, self.world, self.registry.deps.state.snapshot)
        if self.options.tour:
            shown = self.options.data if not self.options.default_data else None
            await self._unless_stopped(Tour(url, self.folders.accounts, self._mint, str(shown or "")).show())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_conditions())
            await self.report.follow_index(self.world, self.stop)

    async def _unless_stopped(self, showing: Coroutine[None, None, None]) -> None:
        """Wait for it, or leave it: of a registry that stops it would get no answer."""
        shown, stopped = asyncio.ensure_future(showing), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((shown, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not self.stop.is_set():
                shown.result()
        finally:
            for each in (shown, stopped):
                each.cancel()
            await asyncio.gather(shown, stopped, return_exceptions=True)

    def _mint(self, account: str) -> str:
        namespace, _, name = account.partition("/")
        return self.issuer.mint(namespace, name, ttl=300.0)

    async def _follow(self) -> None:
        async for change in self.folders.watch(self.stop):
            if change.changed or change.removed:
                self.objects.forget(change.removed)
                # of thousands of Tools none says where calls may go, or which accounts there are
                kinds = {*(item.kind for item in change.changed), *(kind for kind, _, _ in change.removed)}
                if kinds != {"Tool"}:
                    self._open_hosts()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await self.loop.published(change.number)
            await self._keep_approvals()
            self.report.changed(change, self.conditions)
            await self.programs.keep(lambda server, command: is_wanted(self.world, server, command))

    async def _keep_approvals(self) -> None:
        try:
            self.report.first_used(await asyncio.to_thread(self.approvals.save))
            await asyncio.to_thread(self.kept.save)
        except OSError as error:
            self.report.not_kept(error)

    async def _follow_conditions(self) -> None:
        while True:  # cancelled at the stop
            said = await self.conditions.changes()
            self.report.imported(self.imported.news())
            await self._keep_approvals()
            self.report.later(said)

    async def _follow_hosts(self) -> None:
        while not self.stop.is_set():
            if self.report.hosts(self.hosts.file, lambda: self.folders.backends):
                self._open_hosts()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOSTS_SECONDS):
                    await self.stop.wait()

    def _open_hosts(self) -> None:
        """Let calls go where options, hosts file and the Services of the manifests say now."""
        hosts = self.hosts.effective(self.folders.services)
        current = self.registry.egress.current
        if (hosts.allow, hosts.backends) != (current.allow, current.backends):
            self.registry.egress.open(hosts.allow, hosts.backends)
        self.store.told = told(self.options, self.store, self.registry.deps.settings, hosts)
        self.store.write_state(f"http://127.0.0.1:{self.port}", self.folders.accounts)


async def _compose(
    settings: RegistrySettings,
    store: Store,
    world: World,
    folders: Folders,
    issuer: LocalIssuer,
    stack: contextlib.AsyncExitStack,
    on_broken: Callable[[], None],
    judging: LoopSettings,
    writer: MemoryWriter,
    imported: ImportedTools,
    programs: LocalPrograms,
    access: LocalAccess,
) -> tuple[Loop, Registry]:
    """The registry and the loop, each given the other by its port."""

    async def published(change: int) -> Revision:
        return await loop.published(change)

    def granted(namespace: str, name: str) -> set[str]:
        subject = f"system:serviceaccount:{namespace}:{name}"
        far = time.time() + 3600
        identity = Identity(issuer=issuer.issuer.issuer, subject=subject, expires_at=far, cluster=True)
        return set(granted_scopes(identity, registry.deps.state.snapshot.policy, time.time()))

    registry = await build(
        settings,
        keys=_LocalKeys(issuer.keyset),
        registrar=Registrations(store.path("registrations"), world, published),
        desk=access,
        oauth=ClientTokens(issuer, granted),
        remedies=LocalRemedies(),
        declared=lambda: folders.declared,
        programs=programs,
    )
    stack.push_async_callback(registry.aclose)
    await registry.start(on_broken)
    replica = InProcessReplica(registry.deps)
    publisher = Publisher(store.next_epoch(), FixedReplicas(replica))
    access.open(publisher)
    index_sync = IndexSync(publisher, settings=IndexSettings(spared_namespace=None))
    imports = Imports(world, publisher, ServerReports(publisher, lambda name: replica), imported)
    imported.state = imports.of
    loop = Loop(
        world,
        publisher,
        index_sync,
        writer,
        settings=judging,
        imports=imports,
        probes=ProbeReports(publisher, lambda name: replica, settings=_PROBES),
    )
    return loop, registry


def value_of(world: World, reference: SecretReference) -> str | None:
    """A value for a program's environment."""
    ref = Ref(SECRET, f"{reference.namespace}/{reference.name}")
    return secret_value(world.get(ref), ref, reference.key)[0]


def is_wanted(world: World, server: str, command: tuple[str, ...]) -> bool:
    """Whether a ToolServer still has this command, and is not disabled."""
    entry = world.get(Ref(SERVER, server))
    resource = None if entry is None else entry.resource
    return isinstance(resource, ToolServer) and not resource.disabled and resource.spec.mcp.command == command


@dataclass(frozen=True, slots=True)
class _LocalKeys:
    """The local issuer's key; there is nobody to ask for others."""

    keys: KeySet
    version: int = 1

    def on_change(self, told: Callable[[], None]) -> None:
        """Nothing ever does."""

    async def refresh(self, issuer: str) -> bool:
        """Nothing changes."""
        return False


def _interrupted(stop: asyncio.Event) -> None:
    """The first Ctrl-C asks; a second one does not wait: whatever was acknowledged is on disk already."""
    if stop.is_set():
        os._exit(Exit.INTERRUPTED)
    stop.set()


async def _nothing(scope: object, receive: object, send: object) -> None:
    """Stands in for the app while only the port is taken."""
