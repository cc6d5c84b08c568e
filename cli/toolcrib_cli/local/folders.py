"""Folders of manifests as the local mode's cluster: loaded, watched, and recorded in the operator's world.

A file is taken whole or not at all: a broken edit is reported with file and line, and what the file said before
stays in effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# watchfiles imports it at the first watch, on the event loop: 35 ms
import anyio._backends._asyncio  # noqa: F401
import watchfiles

from toolcrib.errors import Finding
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import AgentScopeBinding, ClusterAgentScopeBinding, Tool, ToolCanary, ToolServer
from toolcrib.resources.tools import Approval
from toolcrib_cli import manifests
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.manifests import FileContent, Loaded, ManifestProblem
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.kinds.service import services_of
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

_RECORDED = (*WATCHED, SECRET)
Key = tuple[str, str | None, str]
_TICK = 1.0
"""Seconds between looks at what no watch tells of."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one look at the folders brought: `number` is the world's change to wait for."""

    number: int
    changed: tuple[Loaded, ...]
    removed: tuple[Key, ...]
    problems: tuple[ManifestProblem, ...]


class Folders:
    """Manifest files under some paths, kept in step with a `World`."""

    def __init__(
        self,
        paths: Sequence[Path],
        world: World,
        clock: Callable[[], float] = time.time,
        *,
        hidden: Hidden = Hidden.REFUSE,
        approvals: Approvals | None = None,
    ) -> None:
        self._hidden = hidden
        self._approvals = approvals
        self._paths = tuple(p.absolute() for p in paths)
        self._world = world
        self._clock = clock
        self._good: dict[Path, FileContent] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._created: dict[Key, str] = {}
        self._links: frozenset[Path] = frozenset()
        self._holders: defaultdict[Key, set[Path]] = defaultdict(set)
        self._parents: set[Path] = set()
        self._refused: dict[Path, frozenset[Key]] = {}
        """Files that gave way to another one with the same object."""
        self.objects: dict[Key, Loaded] = {}
        self.skipped: list[str] = []

    def load(self) -> Change:
        """Read everything; every kind counts as listed afterwards, in one step."""
        change = self._look(record=False)
        by_kind: dict[str, list[Any]] = {kind: [] for kind in _RECORDED}
        for item in self.objects.values():
            if item.kind in by_kind:
                by_kind[item.kind].append(self._manifest(item))
        number = 0
        for kind, objects in by_kind.items():
            number = self._world.replace(kind, objects)
        return Change(number, change.changed, change.removed, change.problems)

    async def watch(self, stop: asyncio.Event) -> AsyncIterator[Change]:
        """Every later change, within a fraction of a second of the edit; a second more where a folder is recreated."""
        while not stop.is_set():
            roots = self._roots()
            look = True  # what was edited while nobody watched yet is found by looking
            async with contextlib.aclosing(_events(roots, stop)) as events:
                async for happened in events:
                    # a watch follows the folder that it was given, not another one of the same name
                    renewed = self._roots() != roots
                    whole = look or renewed or self._links_changed()
                    only = None if whole else self._named(happened)
                    if only is None or only:
                        change = await asyncio.to_thread(self._look, only)
                        if change.changed or change.removed or change.problems:
                            yield change
                    look = False
                    if renewed:
                        break

    def _named(self, happened: Collection[Path]) -> set[Path] | None:
        """The manifest files among these paths; None: folders came or went, or it is not known what they are."""
        found: set[Path] = set()
        for path in happened:
            if path in self._stamps:
                found.add(path)
            elif path in self._parents or path.is_dir() or not manifests.within(path, self._paths):
                return None
            elif manifests.belongs(path, self._paths):
                found.add(path)
        return found

    def _roots(self) -> dict[Path, tuple[int, int]]:
        """The folders to watch that exist, and which ones they are."""
        found: dict[Path, tuple[int, int]] = {}
        for path in self._paths:
            with contextlib.suppress(OSError):
                root = path if path.is_dir() else path.parent
                stat = root.stat()
                found[root] = (stat.st_dev, stat.st_ino)
        return found

    def _links_changed(self) -> bool:
        """Whether a file that a link leads to is another one than before: nobody watches its folder."""
        return any(_stamp(file) != self._stamps.get(file) for file in self._links)

    def _look(self, only: Collection[Path] | None = None, *, record: bool = True) -> Change:
        """Read what is new of these files; None: of all that there are."""
        files = manifests.files_in(self._paths) if only is None else sorted(only)
        problems: list[ManifestProblem] = []
        fresh: dict[Path, FileContent] = {}
        gone: set[Path] = set() if only is not None else self._good.keys() - set(files)
        for file in files:
            stamp = _stamp(file)
            if stamp is None and not file.exists():
                gone.add(file)
                continue
            if stamp is not None and self._stamps.get(file) == stamp:
                continue
            content = self._read(file)
            problems += content.problems
            if stamp is not None:
                self._stamps[file] = stamp
            if not content.problems:
                fresh[file] = content
                self.skipped += content.skipped
        for file in self._may_come_back(fresh, gone):
            if not (content := self._read(file)).problems:
                fresh[file] = content
        links = frozenset(file for file in files if file.is_symlink())
        self._links = links if only is None else (self._links - gone) | links
        self._parents.update(
            parent for folder in {f.parent for f in files} for parent in (folder, *folder.parents)
        )
        problems += self._yield_to_held(fresh, gone)
        for file in gone:
            self._stamps.pop(file, None)
        return self._adopt(fresh, gone, problems, record=record)

    def _read(self, file: Path) -> FileContent:
        content = manifests.read(file, hidden=self._hidden)
        content.problems += self._moved(content)
        self._refused.pop(file, None)
        return content

    def _may_come_back(self, fresh: Mapping[Path, FileContent], gone: Collection[Path]) -> list[Path]:
        """Files that gave way to an object that is no longer there."""
        left = {
            item.key for file in (*gone, *fresh) if file in self._good for item in self._good[file].objects
        }
        left -= {item.key for content in fresh.values() for item in content.objects}
        return sorted(f for f, keys in self._refused.items() if keys & left and f not in fresh and f.exists())

    def _yield_to_held(self, fresh: dict[Path, FileContent], gone: set[Path]) -> list[ManifestProblem]:
        """Take those out of `fresh` of which an object stands elsewhere too: the newcomer gives way, whole."""
        problems: list[ManifestProblem] = []
        while True:
            keys = {item.key for content in fresh.values() for item in content.objects}
            beside = {file for key in keys for file in self._holders.get(key, ())} - gone - fresh.keys()
            vanished = {file for file in beside if not file.exists()}  # its own event comes later
            gone |= vanished
            held = [self._good[file] for file in sorted(beside - vanished)]
            clashes = [c for c in manifests.duplicates([*held, *fresh.values()]) if c.file in fresh]
            if not clashes:
                return problems
            for clash in clashes:
                problems.append(clash)
                if (refused := fresh.pop(clash.file, None)) is not None:
                    self._refused[clash.file] = frozenset(item.key for item in refused.objects)

    def _moved(self, content: FileContent) -> Iterator[ManifestProblem]:
        """Tools that an edit gives another name or server: an API server would refuse it (rules with `oldSelf`)."""
        for item in content.objects:
            held = self.objects.get(item.key)
            before, after = (held.resource if held else None), item.resource
            if not isinstance(before, Tool) or not isinstance(after, Tool):
                continue
            for field, old, new in (
                ("name", before.name, after.name),
                ("server", before.spec.server, after.spec.server),
            ):
                if old != new:
                    said = f"is immutable: it is {old or 'absent'}, not {new or 'absent'}"
                    hint = "delete the Tool, save, and create it again"
                    yield ManifestProblem(item.file, item.line, Finding(f"spec.{field}", said, hint))

    def _adopt(
        self,
        fresh: Mapping[Path, FileContent],
        gone: Collection[Path],
        problems: list[ManifestProblem],
        *,
        record: bool,
    ) -> Change:
        touched: dict[Key, None] = {}
        for file in (*sorted(gone), *fresh):
            if (old := self._good.pop(file, None)) is not None:
                for item in old.objects:
                    self._holders[item.key].discard(file)
                    touched[item.key] = None
        for file, content in fresh.items():
            self._good[file] = content
            for item in content.objects:
                self._holders[item.key].add(file)
                touched[item.key] = None
        removed: list[Key] = []
        changed: list[Loaded] = []
        objects = dict(self.objects)  # the event loop reads the one that is there
        for key in touched:
            before, now = objects.get(key), self._held(key)
            if now is None:
                self._holders.pop(key, None)
                if before is not None:
                    del objects[key]
                    removed.append(key)
                continue
            objects[key] = now
            if before is None or before.body != now.body:
                changed.append(now)
        self.objects = objects
        number = self._world.change
        if record:
            for kind, namespace, name in removed:
                if kind in _RECORDED:
                    number = self._world.remove(kind, f"{namespace}/{name}" if namespace else name)
            for item in (*changed, *self._late(changed)):
                if item.kind in _RECORDED:
                    number = self._world.upsert(item.kind, self._manifest(item))
        return Change(number, tuple(changed), tuple(removed), tuple(problems))

    def _late(self, changed: Sequence[Loaded]) -> Iterator[Loaded]:
        """Tools of ToolServers that came or changed: none was approved on first use while its server was missing."""
        servers = {(item.namespace, item.name) for item in changed if item.kind == "ToolServer"}
        if self._approvals is None or not servers:
            return
        for item in self.objects.values():
            tool = item.resource
            if not isinstance(tool, Tool) or tool.spec.approval is not Approval.MANUAL:
                continue
            if tool.spec.backend.mcp and (item.namespace, tool.spec.backend.mcp.server_ref.name) in servers:
                yield item

    def _held(self, key: Key) -> Loaded | None:
        """The object as one of the files has it: a companion may stand in several alike."""
        files = self._holders.get(key)
        return next(item for item in self._good[min(files)].objects if item.key == key) if files else None

    def _manifest(self, item: Loaded) -> Any:
        """The object with what an API server would have filled in: its namespace and when it was first seen."""
        first_seen = datetime.fromtimestamp(self._clock(), UTC).isoformat()
        created = self._created.setdefault(item.key, first_seen)
        metadata = dict(item.body.get("metadata") or {})
        metadata["creationTimestamp"] = created
        if item.namespace is not None:
            metadata["namespace"] = item.namespace
        if item.kind == "Namespace":
            labels = dict(metadata.get("labels") or {})
            metadata["labels"] = labels | {"kubernetes.io/metadata.name": item.name}
        made = {**item.body, "metadata": metadata}
        if self._approvals is not None and isinstance(item.resource, ToolCanary):
            return self._approvals.applied_to_canary(made, item.resource)
        if self._approvals is None or not isinstance(item.resource, Tool):
            return made
        new = self._world.get(Ref("Tool", f"{item.namespace}/{item.name}")) is None
        return self._approvals.applied(
            made, item.resource, self._server(item.resource, item.namespace), new=new
        )

    def _server(self, tool: Tool, namespace: str | None) -> ToolServer | None:
        """The ToolServer that a Tool's backend names."""
        if tool.spec.backend.mcp is None:
            return None
        held = self.objects.get(("ToolServer", namespace, tool.spec.backend.mcp.server_ref.name))
        return held.resource if held is not None and isinstance(held.resource, ToolServer) else None

    def renew(self, kind: str, key: str) -> int:
        """Record an object of the files again: what is approved of it changed. Returns the world's change."""
        namespace, _, name = key.rpartition("/")
        item = self.objects.get((kind, namespace or None, name))
        return self._world.change if item is None else self._world.upsert(kind, self._manifest(item))

    @property
    def accounts(self) -> list[str]:
        """`namespace/name` of every service account that a manifest declares or a binding names."""
        found = set(self.declared)
        for item in self.objects.values():
            if isinstance(item.resource, AgentScopeBinding | ClusterAgentScopeBinding):
                for subject in item.body["spec"]["subjects"]:
                    if subject["kind"] in ("ServiceAccount", "Agent"):
                        found.add(f"{subject.get('namespace') or item.namespace}/{subject['name']}")
        return sorted(found)

    @property
    def declared(self) -> list[str]:
        """`namespace/name` of every ServiceAccount of the manifests."""
        return sorted(f"{ns}/{name}" for kind, ns, name in self.objects if kind == "ServiceAccount")

    @property
    def backends(self) -> list[str]:
        """`namespace/name` of every Service that a manifest declares, or a Tool or ToolServer names."""
        found = set(self.services)
        for item in self.objects.values():
            if isinstance(item.resource, Tool | ToolServer):
                found |= {ref.key for ref in services_of(item.resource)}
        return sorted(found)

    @property
    def services(self) -> list[str]:
        """`namespace/name` of every Service that a manifest declares."""
        return sorted(f"{ns}/{name}" for kind, ns, name in self.objects if kind == "Service")


async def _events(roots: Collection[Path], stop: asyncio.Event) -> AsyncGenerator[frozenset[Path]]:
    """The paths below `roots` to which something happened; none of them about once a second in which nothing did."""
    if not roots:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _TICK)
        yield frozenset()
        return
    batches = watchfiles.awatch(
        *roots, stop_event=stop, debounce=100, step=20, rust_timeout=int(_TICK * 1000), yield_on_timeout=True
    )
    try:
        async with contextlib.aclosing(batches):
            async for batch in batches:
                yield frozenset(Path(path) for _, path in batch)
    except FileNotFoundError:  # a folder went away just now
        yield frozenset()


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size)
