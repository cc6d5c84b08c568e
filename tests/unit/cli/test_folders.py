"""Folders of manifests in the local mode: what an edit of one file of many makes it read and record."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolcrib_cli import manifests
from toolcrib_cli.local.folders import Change, Folders
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

pytestmark = pytest.mark.anyio

TOOL = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {{name: {name}, namespace: demo}}
spec:
  description: {description}
  scopes: ["a:use"]
  backend: {{none: {{}}}}
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {{name: demo, labels: {{tier: {tier}}}}}\n"


class Watched:
    """Folders that are watched; `next` is the next change, `read` the files that were read for it."""

    def __init__(self, folders: Folders, world: World, read: list[str], looks: list[object]) -> None:
        self.folders, self.world, self.read, self.looks = folders, world, read, looks
        self._stop = asyncio.Event()
        self._changes = folders.watch(self._stop)

    async def next(self) -> Change:
        async with asyncio.timeout(60):
            return await anext(self._changes)

    def mark(self) -> None:
        """Forget what was read and what is dirty."""
        self.read.clear()
        self.looks.clear()
        self.world.take()

    async def close(self) -> None:
        self._stop.set()
        await self._changes.aclose()  # type: ignore[attr-defined]


def write(folder: Path, name: str, text: str) -> Path:
    """In one step, as editors do."""
    draft = folder.parent / "draft"
    draft.write_text(text)
    return draft.replace(folder / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (found := tmp_path / "manifests").mkdir()
    for number in range(50):
        write(found, f"tool-{number}.yaml", TOOL.format(name=f"tool-{number}", description=f"The {number}."))
    return found


@contextlib.asynccontextmanager
async def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    """Loaded, and past the first look, which finds what was edited before the watch began."""
    read: list[str] = []
    looks: list[object] = []
    plain, found = manifests.read, manifests.files_in

    def noted(file: Path, **given: object) -> manifests.FileContent:
        read.append(file.name)
        return plain(file, **given)  # type: ignore[arg-type]

    def listed(paths: tuple[Path, ...]) -> list[Path]:
        looks.append(paths)
        return found(paths)

    world = World()
    folders = Folders([folder], world)
    folders.load()
    monkeypatch.setattr(manifests, "read", noted)
    monkeypatch.setattr(manifests, "files_in", listed)
    one = Watched(folders, world, read, looks)
    write(folder, "tool-0.yaml", TOOL.format(name="tool-0", description="Edited before the watch."))
    assert [item.name for item in (await one.next()).changed] == ["tool-0"]
    one.mark()
    try:
        yield one
    finally:
        await one.close()


async def test_an_edit_reads_the_file_that_changed_and_records_its_objects_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(folder, monkeypatch) as one:
        write(folder, "tool-7.yaml", TOOL.format(name="tool-7", description="Another text."))
        change = await one.next()
        assert [item.name for item in change.changed] == ["tool-7"]
        assert one.read == ["tool-7.yaml"]
        assert one.looks == [], "the folder is not listed"
        assert one.world.take()[0] == {Ref("Tool", "demo/tool-7")}

        (folder / "tool-8.yaml").unlink()
        assert (await one.next()).removed == (("Tool", "demo", "tool-8"),)
        write(folder, "new.yaml", TOOL.format(name="new", description="New."))
        assert [item.name for item in (await one.next()).changed] == ["new"]
        assert one.looks == []


async def test_folders_that_come_and_go_are_looked_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with watched(folder, monkeypatch) as one:
        (brought := tmp_path / "brought").mkdir()
        write(brought, "inside.yaml", TOOL.format(name="inside", description="Inside."))
        brought.rename(folder / "brought")
        assert [item.name for item in (await one.next()).changed] == ["inside"]
        (folder / "brought").rename(brought)
        assert (await one.next()).removed == (("Tool", "demo", "inside"),)


async def test_an_object_that_moves_to_another_file_stays_and_a_second_one_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(folder, monkeypatch) as one:
        (folder / "tool-9.yaml").rename(folder / "moved.yaml")
        write(folder, "again.yaml", TOOL.format(name="tool-1", description="Twice."))
        change = await one.next()
        while not change.problems:
            change = await one.next()
        assert "stands at" in str(change.problems[0])
        assert one.folders.objects["Tool", "demo", "tool-9"].file.name == "moved.yaml"
        assert one.folders.objects["Tool", "demo", "tool-1"].file.name == "tool-1.yaml"


def test_a_companion_that_stands_in_two_files_stays_until_both_are_gone(folder: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        write(folder, name, NAMESPACE.format(tier="one"))
    folders = Folders([folder], World())
    assert not folders.load().problems
    write(folder, "b.yaml", NAMESPACE.format(tier="two"))
    assert "stands at" in str(folders._look({folder / "b.yaml"}).problems[0])
    (folder / "a.yaml").unlink()
    assert folders._look({folder / "a.yaml"}).removed == ()
    (folder / "b.yaml").unlink()
    assert folders._look({folder / "b.yaml"}).removed == (("Namespace", None, "demo"),)


def test_a_single_file_that_is_removed_revokes_what_it_granted(folder: Path) -> None:
    folders = Folders([folder / "tool-3.yaml"], World())
    folders.load()
    (folder / "tool-3.yaml").unlink()
    assert folders._look().removed == (("Tool", "demo", "tool-3"),)


def test_the_object_of_a_file_that_gave_way_comes_back_when_the_other_is_gone(folder: Path) -> None:
    folders = Folders([folder], World())
    folders.load()
    second = write(folder, "second.yaml", TOOL.format(name="tool-3", description="The second."))
    assert "stands at" in str(folders._look({second}).problems[0])
    (first := folder / "tool-3.yaml").unlink()

    change = folders._look({first})

    assert [item.file.name for item in change.changed] == ["second.yaml"]
    assert folders.objects["Tool", "demo", "tool-3"].file.name == "second.yaml"


def test_a_file_that_is_moved_and_moved_back_is_there_again(folder: Path) -> None:
    folders = Folders([folder], World())
    folders.load()
    (here := folder / "tool-5.yaml").rename(there := folder / "moved.yaml")
    folders._look({there})
    there.rename(here)

    folders._look({there, here})

    assert folders.objects["Tool", "demo", "tool-5"].file.name == "tool-5.yaml"


def test_objects_can_be_read_while_they_change(folder: Path) -> None:
    folders = Folders([folder], World())
    folders.load()
    seen = iter(folders.objects)
    next(seen)
    (gone := folder / "tool-1.yaml").unlink()
    folders._look({gone})

    assert len(list(seen)) == 49, "an iteration that has begun goes on over what was there"
    assert len(folders.objects) == 49
