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
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from toolcrib.authorizer import granted_scopes
from toolcrib.errors import SettingsInvalid
from toolcrib.identity import Identity, KeySet
from toolcrib.resources.quantities import Quota
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
from toolcrib_cli.local.folders import Folders
from toolcrib_cli.local.hosts import FILE, Hosts, HostsFile, LocalHosts, LocalRemedies
from toolcrib_cli.local.imported import ImportedTools
from toolcrib_cli.local.kept_imports import FILE as IMPORTED
from toolcrib_cli.local.kept_imports import KeptImports
from toolcrib_cli.local.objects import Objects
from toolcrib_cli.local.programs.outbound import LocalPrograms
from toolcrib_cli.local.registrations import Registrations
from toolcrib_cli.local.replica import InProcessReplica
from toolcrib_cli.local.report import Report
from toolcrib_cli.local.running import LocalMode
from toolcrib_cli.local.settings import Options, settings_of, told
from toolcrib_cli.local.store import ACCESS, AGENTS, Store
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
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
        store.write_state(url, folders.accounts)
        local = LocalMode(
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
                url,
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
