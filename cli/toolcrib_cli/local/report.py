"""What the local mode says while it runs: parts and their health, changes, problems, the index filling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from toolcrib import __version__
from toolcrib.resources import KINDS
from toolcrib.snapshot import Snapshot
from toolcrib_cli import output
from toolcrib_cli.local.folders import Change, Folders
from toolcrib_cli.local.hosts import HostsFile, HostsInvalid
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.kinds.verdicts import AnyVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

_MAX_LINES = 20


class Report:
    """Prints to the console; keeps no state but when it started."""

    def __init__(self, data: Path, *, hybrid: bool = True) -> None:
        self._data = data
        self._mode = "hybrid" if hybrid else "lexical"
        self._started = time.monotonic()

    def starting(self, manifests: tuple[Path, ...]) -> None:
        """The first line: what runs where."""
        output.line(f"Toolcrib {__version__}, local mode; data in {self._data}", style="bold")
        if not manifests:
            output.line("no --manifests given: only runtime registrations will be there", style="yellow")

    def loaded(self, folders: Folders, change: Change) -> None:
        """What stands in the folders, and what is wrong with it."""
        counts = {kind: sum(k == kind for k, _, _ in folders.objects) for kind in KINDS}
        shown = ", ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in counts.items() if n)
        output.line(f"manifests: {shown or 'none'}")
        for skipped in folders.skipped[:_MAX_LINES]:
            output.line(f"skipped, not one of ours: {skipped}", style="dim")
        self._problems(change, first=True)

    def healthy(self, url: str, tools_url: str, world: World, snapshot: Snapshot) -> None:
        """Which parts are up, and where."""
        output.heading("Parts")
        seconds = time.monotonic() - self._started
        accepted = sum(_status(e.status, "Accepted") == "True" for e in world.all("Tool"))
        output.table(
            ("part", "state", "where"),
            [
                ("registry", f"healthy, revision {snapshot.revision}, {snapshot.active_tools} tools", url),
                (
                    "operator",
                    f"healthy, {accepted or len(snapshot.tools)} tools and {len(snapshot.bindings)} bindings assessed",
                    "in process",
                ),
                (
                    "search index",
                    "embedded; filling in the background",
                    str(self._data / "search-index.sqlite"),
                ),
                ("example tools", "healthy", tools_url),
                ("issuer", "mints tokens: toolcrib token NAME", f"{url}/oauth/token"),
                ("metrics", "Prometheus text", f"{url}/metrics"),
            ],
        )
        output.line(f"up in {seconds:.1f} s")

    def refused(self, quotas: Quotas) -> None:
        """Which namespaces have more tools than their quota allows."""
        over = [quotas.over()[name] for name in sorted(quotas.over())]
        for use, why in over[:_MAX_LINES]:
            output.line(f"{use.refused:,} tools refused: QuotaExceeded: {why}", style="red")
        if len(over) > _MAX_LINES:
            output.line(f"… and {len(over) - _MAX_LINES} more namespaces", style="red")

    def hosts(self, file: HostsFile, known: Sequence[str]) -> bool:
        """Look at the hosts file, and say what it opens now or what is wrong with it; whether it says something else."""
        try:
            changed = file.look()
        except HostsInvalid as error:
            for problem in error.problems[:_MAX_LINES]:
                output.line(problem, style="red", stderr=True)
            output.line(
                "the hosts file changed nothing; what it said before stays in effect",
                style="red",
                stderr=True,
            )
            return False
        if changed:
            at, hosts = time.strftime("%H:%M:%S"), file.hosts
            places = [f"{service}={place}" for service, place in hosts.backends.items()]
            said = [
                f"{what} {', '.join(found[:_MAX_LINES])}"
                for what, found in (("may call", list(hosts.allow)), ("backends", places))
                if found
            ]
            output.line(f"{at} {file.file.name}: {'; '.join(said) or 'nothing is opened'}")
            self.backends(hosts.backends, known, f"{file.file.name}:")
        return changed

    def backends(self, given: Iterable[str], known: Sequence[str], by: str = "--backend") -> None:
        """Name each backend of a Service that no manifest has: it serves no tool, until one names it."""
        for service in given:
            if service not in known:
                there = f"there: {', '.join(known)}" if known else "there are none"
                message = f"{by} {service}: no Service and no Tool's backend has this name ({there})"
                output.line(f"warning: {message}", style="yellow", stderr=True)

    def changed(self, change: Change, verdicts: Mapping[Ref, AnyVerdict]) -> None:
        """One look at the folders that brought something."""
        at = time.strftime("%H:%M:%S")
        lines = [
            f"{i.kind} {i.namespace + '/' if i.namespace else ''}{i.name} in effect"
            for i in change.changed
            if i.kind in KINDS
        ]
        lines += [
            f"{kind} {ns + '/' if ns else ''}{name} gone"
            for kind, ns, name in change.removed
            if kind in KINDS
        ]
        for text in lines[:_MAX_LINES]:
            output.line(f"{at} {text}")
        if len(lines) > _MAX_LINES:
            output.line(f"{at} … and {len(lines) - _MAX_LINES} more")
        for item in change.changed[:_MAX_LINES]:
            ref = Ref(item.kind, f"{item.namespace}/{item.name}" if item.namespace else item.name)
            # not what the status says: that may not be written yet
            if (verdict := verdicts.get(ref)) is not None and (why := verdict.refusal) is not None:
                output.line(f"{ref}: {why.reason}: {why.message}", style="red")
        self._problems(change)

    def _problems(self, change: Change, *, first: bool = False) -> None:
        for problem in change.problems[:_MAX_LINES]:
            output.line(problem, style="red", stderr=True)
        if change.problems:
            text = (
                "these files are not used"
                if first
                else "these files changed nothing; what they said before stays in effect"
            )
            output.line(text, style="red", stderr=True)

    async def follow_index(self, world: World, stop: asyncio.Event) -> None:
        """Show the index filling until every tool is Ready, for a person; one line at the end otherwise."""

        def ready() -> tuple[int, int]:
            done = total = 0
            for tool in world.all("Tool"):
                status = tool.status
                if _status(status, "Accepted") != "False":
                    total += 1
                    done += _status(status, "Indexed") == "True"
            return done, total

        # statuses are kept packed: thousands of them would hold the event loop
        done, total = await asyncio.to_thread(ready)
        shown = output.console()
        if total == 0:
            return
        columns = (TextColumn("search index"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
            task = progress.add_task("", total=total, completed=done)
            while done < total and not stop.is_set():
                try:
                    async with asyncio.timeout(0.5):
                        await stop.wait()
                except TimeoutError:
                    done, total = await asyncio.to_thread(ready)
                    progress.update(task, completed=done, total=total)
        if not stop.is_set():
            output.line(
                f"search index: {done} of {total} tools indexed and read back; search is {self._mode} now"
            )

    def stopped(self) -> None:
        """The last line."""
        output.line("stopped; everything that was started has ended")


def _status(status: object, kind: str) -> str:
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return next((c["status"] for c in conditions if c["type"] == kind), "Unknown")
