"""Folders of manifests as the local mode's cluster: loaded, watched, and recorded in the operator's world.

A file is taken whole or not at all: a broken edit is reported with file and line, and what the file said before
stays in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# watchfiles imports it at the first watch, on the event loop: 35 ms
import anyio._backends._asyncio  # noqa: F401
import watchfiles

from toolcrib.errors import Finding
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import KINDS, Tool
from toolcrib_cli import manifests
from toolcrib_cli.manifests import FileContent, Loaded, ManifestProblem
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.kinds.table import WATCHED
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
    ) -> None:
        self._hidden = hidden
        self._paths = tuple(p.absolute() for p in paths)
        self._world = world
        self._clock = clock
        self._good: dict[Path, FileContent] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._created: dict[Key, str] = {}
        self._links: tuple[Path, ...] = ()
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
        """Every later change, within a fraction of a second of the edit; a second more where a folder is made anew."""
        while not stop.is_set():
            roots = self._roots()
            look = True  # what was edited while nobody watched yet is found by looking
            async with contextlib.aclosing(_events(roots, stop)) as events:
                async for happened in events:
                    # a watch follows the folder that it was given, not another one of the same name
                    renewed = self._roots() != roots
                    if happened or look or renewed or self._links_changed():
                        change = await asyncio.to_thread(self._look)
                        if change.changed or change.removed or change.problems:
                            yield change
                    look = False
                    if renewed:
                        break

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

    def _look(self, *, record: bool = True) -> Change:
        files = manifests.files_in(self._paths)
        self._links = tuple(file for file in files if file.is_symlink())
        problems: list[ManifestProblem] = []
        fresh: dict[Path, FileContent] = {}
        for file in files:
            stamp = _stamp(file)
            if stamp is not None and self._stamps.get(file) == stamp:
                continue
            content = manifests.read(file, hidden=self._hidden)
            if stamp is None and not file.exists():
                continue
            content.problems += self._moved(content)
            problems += content.problems
            if stamp is not None:
                self._stamps[file] = stamp
            if not content.problems:
                fresh[file] = content
                self.skipped += content.skipped
        gone = [file for file in self._good if file not in files]
        candidate = {f: c for f, c in self._good.items() if f not in gone} | fresh
        clashes = list(manifests.duplicates(candidate.values()))
        for clash in clashes:
            problems.append(clash)
            # the newcomer gives way, whole
            loser = (
                clash.file if clash.file in fresh else next((f for f in fresh if f != clash.file), clash.file)
            )
            candidate.pop(loser, None)
            if loser in self._good and loser not in gone:
                candidate[loser] = self._good[loser]
        for file in gone:
            self._stamps.pop(file, None)
        return self._adopt(candidate, problems, record=record)

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
        self, contents: dict[Path, FileContent], problems: list[ManifestProblem], *, record: bool
    ) -> Change:
        before, self._good = self.objects, contents
        now = {item.key: item for content in contents.values() for item in content.objects}
        self.objects = now
        removed = tuple(key for key in before if key not in now)
        changed = tuple(
            item for key, item in now.items() if key not in before or before[key].body != item.body
        )
        number = self._world.change
        if record:
            for kind, namespace, name in removed:
                if kind in _RECORDED:
                    number = self._world.remove(kind, f"{namespace}/{name}" if namespace else name)
            for item in changed:
                if item.kind in _RECORDED:
                    number = self._world.upsert(item.kind, self._manifest(item))
        return Change(number, changed, removed, tuple(problems))

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
        return {**item.body, "metadata": metadata}

    @property
    def accounts(self) -> list[str]:
        """`namespace/name` of every service account that a manifest declares or a binding names."""
        found = {f"{ns}/{name}" for kind, ns, name in self.objects if kind == "ServiceAccount"}
        for item in self.objects.values():
            if item.kind in KINDS and item.kind != "Tool":
                for subject in item.body["spec"]["subjects"]:
                    if subject["kind"] in ("ServiceAccount", "Agent"):
                        found.add(f"{subject.get('namespace') or item.namespace}/{subject['name']}")
        return sorted(found)

    @property
    def backends(self) -> list[str]:
        """`namespace/name` of every Service that a manifest declares or a Tool names."""
        found = set(self.services)
        for item in self.objects.values():
            if isinstance(item.resource, Tool) and (http := item.resource.spec.backend.http) and http.service:
                found.add(f"{item.namespace}/{http.service.name}")
        return sorted(found)

    @property
    def services(self) -> list[str]:
        """`namespace/name` of every Service that a manifest declares."""
        return sorted(f"{ns}/{name}" for kind, ns, name in self.objects if kind == "Service")


async def _events(roots: Collection[Path], stop: asyncio.Event) -> AsyncGenerator[bool]:
    """True for something that happened below `roots`, False about once a second in which nothing did."""
    if not roots:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _TICK)
        yield False
        return
    batches = watchfiles.awatch(
        *roots, stop_event=stop, debounce=100, step=20, rust_timeout=int(_TICK * 1000), yield_on_timeout=True
    )
    try:
        async with contextlib.aclosing(batches):
            async for batch in batches:
                yield bool(batch)
    except FileNotFoundError:  # a folder went away just now
        yield False


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size)
