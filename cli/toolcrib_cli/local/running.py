"""What the local mode does until it is stopped: serves, follows its folders, and says what happens."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from dataclasses import dataclass

from toolcrib import process
from toolcrib.resources.servers import ToolServer
from toolcrib_cli.local.access import LocalAccess
from toolcrib_cli.local.api_docs import ApiDocs
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.conditions import Conditions
from toolcrib_cli.local.folders import Change, Folders
from toolcrib_cli.local.hosts import LocalHosts
from toolcrib_cli.local.imported import ImportedTools
from toolcrib_cli.local.kept_imports import KeptImports
from toolcrib_cli.local.objects import Objects
from toolcrib_cli.local.programs.outbound import LocalPrograms
from toolcrib_cli.local.report import Report
from toolcrib_cli.local.settings import Options, told
from toolcrib_cli.local.store import Store
from toolcrib_cli.local.tour import Tour
from toolcrib_operator.kinds.facts import SERVER
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World
from toolcrib_registry.compose import Registry
from toolcrib_registry.http import serving
from toolcrib_registry.identity.issuer import LocalIssuer

HOSTS_SECONDS = 0.5
"""Between two looks at the hosts file."""
IMPORTS_WITHIN = 1.0
"""Seconds that the start waits for lists of ToolServers; the others come later."""


@dataclass(slots=True)
class LocalMode:
    """The parts, and what each does until `stop`."""

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
            await self.programs.keep(lambda server, command: _is_wanted(self.world, server, command))

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


def _is_wanted(world: World, server: str, command: tuple[str, ...]) -> bool:
    """Whether a ToolServer still has this command, and is not disabled."""
    entry = world.get(Ref(SERVER, server))
    resource = None if entry is None else entry.resource
    return isinstance(resource, ToolServer) and not resource.disabled and resource.spec.mcp.command == command
