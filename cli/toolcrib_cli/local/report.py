"""What the local mode says while it runs: parts and their health, changes, problems, the index filling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from toolcrib import __version__
from toolcrib.resources import KINDS
from toolcrib.resources.conditions import ConditionReason
from toolcrib.snapshot import Snapshot
from toolcrib_cli import output
from toolcrib_cli.local.conditions import Conditions, Said, ref_of
from toolcrib_cli.local.folders import Change, Folders
from toolcrib_cli.local.hosts import HostsFile, HostsInvalid
from toolcrib_cli.places import Places
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.kinds.records import Records
from toolcrib_operator.kinds.verdicts import ToolVerdict
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
            output.line(f"skipped, not an object of Toolcrib: {skipped}", style="dim")
        self._problems(change, first=True)

    def first_used(self, tools: Sequence[str]) -> None:
        """Which tools with approval Manual are approved because they are new here."""
        if tools:
            more = f" and {len(tools) - _MAX_LINES} more" if len(tools) > _MAX_LINES else ""
            output.line(
                f"approved on first use: {', '.join(tools[:_MAX_LINES])}{more}. Changes wait: toolcrib approvals list",
                style="yellow",
            )

    def not_kept(self, error: OSError) -> None:
        """Approvals on first use could not be stored."""
        output.line(
            f"approvals cannot be stored: {error.strerror}. At the next start these tools are new again",
            style="red",
            stderr=True,
        )

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
                ("API pages", "every route, to read and try", f"{url}/docs"),
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

    def hosts(self, file: HostsFile, known: Callable[[], Sequence[str]]) -> bool:
        """Look at the hosts file, and say what it opens now or what is wrong with it; whether it says something else.

        `known` gives the Services that manifests have or name, and is asked where the file says something else.
        """
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
            self.backends(hosts.backends, known(), f"{file.file.name}:")
        return changed

    def backends(self, given: Iterable[str], known: Sequence[str], by: str = "--backend") -> None:
        """Name each backend of a Service that no manifest has: it serves no tool, until one names it."""
        for service in given:
            if service not in known:
                there = f"there: {', '.join(known)}" if known else "there are none"
                message = f"{by} {service}: no Service and no Tool's backend has this name ({there})"
                output.line(f"warning: {message}", style="yellow", stderr=True)

    async def conditions(self, folders: Folders, conditions: Conditions, records: Records) -> None:
        """What the conditions of all objects say at the start; of weak descriptions only how many there are."""
        weak, said = 0, []
        for number, item in enumerate([i for i in folders.objects.values() if i.kind in KINDS]):
            if number % 50 == 49:
                await asyncio.sleep(0)
            record = records.get(ref_of(item))
            verdict = None if record is None else record.verdict
            if isinstance(verdict, ToolVerdict):
                weak += bool(verdict.weaknesses)
                if verdict.refusal is verdict.service is verdict.credential:  # none of them
                    continue
                if verdict.refusal is not None and verdict.refusal.reason is ConditionReason.QUOTA_EXCEEDED:
                    continue  # told by namespace
            if (found := conditions.of(item, weak=False)) is not None and found.remarks:
                said.append(found)
        said.sort(key=lambda each: each.in_effect)
        self._said(said, "")
        if weak:
            s = "s are" if weak != 1 else " is"
            output.line(f"{weak} Tool{s} Questionable: toolcrib validate says why", style="yellow")

    def changed(self, change: Change, conditions: Conditions) -> None:
        """One look at the folders that brought something."""
        at = time.strftime("%H:%M:%S ")
        conditions.forget(change.removed)
        ours = [item for item in change.changed if item.kind in KINDS]
        said = (conditions.of(item) for item in ours[:_MAX_LINES])
        self._said([each for each in said if each is not None], at, edited=True)
        gone = [
            f"{kind} {ns + '/' if ns else ''}{name} gone"
            for kind, ns, name in change.removed
            if kind in KINDS
        ]
        for text in gone[:_MAX_LINES]:
            output.line(f"{at}{text}")
        if (more := len(ours[_MAX_LINES:]) + len(gone[_MAX_LINES:])) > 0:
            output.line(f"{at}… and {more} more")
        self._problems(change)

    def imported(self, lines: Sequence[str]) -> None:
        """Lists of ToolServers that stand as Tools now."""
        for text in lines[:_MAX_LINES]:
            output.line(f"{time.strftime('%H:%M:%S')} {text}")
        if len(lines) > _MAX_LINES:
            output.line(f"… and {len(lines) - _MAX_LINES} more")

    def later(self, said: Sequence[Said]) -> None:
        """What the change of one object has done to others, and what became known later."""
        self._said(said, time.strftime("%H:%M:%S "))

    def _said(self, said: Sequence[Said], at: str, *, edited: bool = False) -> None:
        """A line for each remark, with file and line; of what was edited, and of what is over, that it is in effect."""
        places, lines = Places(), 0
        for each in said:
            shown = each.remarks if edited else each.news
            if each.in_effect and (edited or not each.remarks):
                output.line(f"{at}{each.item.named} in effect")
            elif each.waits and not each.remarks:
                output.line(f"{at}{each.item.named} not in effect: {each.waits}")
            for remark in shown:
                lines += 1
                if lines > _MAX_LINES:
                    continue
                problem = remark.problem(places)
                place = f"{problem.file}:{problem.line}"
                style = "yellow" if remark.used and remark.ready else "red"
                output.line(f"{at}{place}: {each.item.named}: {problem.finding}", style=style)
        if lines > _MAX_LINES:
            output.line(f"{at}… and {lines - _MAX_LINES} more: toolcrib validate says all", style="yellow")

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

        # statuses are kept packed: thousands of them would hold the event loop, and looking all the time the processor
        began = time.monotonic()
        done, total = await asyncio.to_thread(ready)
        shown = output.console()
        if total == 0:
            return
        columns = (TextColumn("search index"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
            task = progress.add_task("", total=total, completed=done)
            while done < total and not stop.is_set():
                try:
                    async with asyncio.timeout(max(0.5, 20 * (time.monotonic() - began))):
                        await stop.wait()
                except TimeoutError:
                    began = time.monotonic()
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
