"""What is approved of imported tools in the local mode: the first list of a server, and nothing that joins later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manifests import manifest, tool
from toolcrib.resources import Tool, ToolServer, parse
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.folders import Folders
from toolcrib_cli.local.imported import ImportedTools
from toolcrib_operator.kinds.imported import Carried, ImportState
from toolcrib_operator.world import World

SERVER_MANIFEST = manifest(
    "ToolServer", "files", "heist", mcp={"url": "http://127.0.0.1:9/mcp"}, defaults={"scopes": ["a:b"]}
)
SERVER = parse(SERVER_MANIFEST)


def approved(approvals: Approvals, name: str, **spec: Any) -> str | None:
    """The digest that an imported tool of the server gets."""
    backend = {"mcp": {"serverRef": {"name": "files"}, "tool": name}}
    made = tool(name, server="files", approval="Manual", backend=backend, **spec)
    read = parse(made)
    assert isinstance(read, Tool)
    assert isinstance(SERVER, ToolServer)
    found = approvals.applied(made, read, SERVER, new=False, imported=True)
    digest = found["spec"].get("approvedDigest")
    assert digest is None or isinstance(digest, str)
    return digest


def test_the_first_list_is_approved_and_what_joins_it_later_is_not_even_after_a_restart(
    tmp_path: Path,
) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    first = approved(approvals, "read")
    assert first is not None
    approvals.known("heist/files")
    assert approved(approvals, "write") is None
    assert approvals.save() == ["heist/read"]

    again = Approvals(tmp_path / "approvals.json")
    assert approved(again, "write") is None, "it joined while nothing ran"
    assert approved(again, "read") == first
    assert approved(again, "read", description="Another text.") == first, "a change is not approved"
    assert again.save() == []


def test_a_server_whose_first_list_was_not_imported_to_its_end_is_new(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    approved(approvals, "read")
    approvals.save()
    assert approved(Approvals(tmp_path / "approvals.json"), "write") is not None


def test_a_tool_that_comes_back_after_its_server_no_longer_listed_it_is_new(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    approved(approvals, "read")
    approvals.known("heist/files")
    approvals.withdraw("heist/read")
    approvals.save()
    assert approved(Approvals(tmp_path / "approvals.json"), "read") is None


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "approvals.json").write_text('{"tools": {}}')
    assert approved(Approvals(tmp_path / "approvals.json"), "read") is not None


@pytest.mark.anyio
async def test_the_first_list_ends_with_its_import_and_not_with_the_status_that_tells_of_it(
    tmp_path: Path,
) -> None:
    world, approvals = World(), Approvals(tmp_path / "approvals.json")
    world.upsert("ToolServer", {**SERVER_MANIFEST, "metadata": {**SERVER_MANIFEST["metadata"], "uid": "s-1"}})
    imported = ImportedTools(world, Folders([tmp_path], world), approvals, lambda ref: None)

    async def written(name: str) -> str | None:
        backend = {"mcp": {"serverRef": {"name": "files"}, "tool": name}}
        made = await imported.apply(tool(name, server="files", approval="Manual", backend=backend), uid=None)
        digest = made["spec"].get("approvedDigest")
        assert digest is None or isinstance(digest, str)
        return digest

    assert await written("read") is not None
    imported.state = lambda ref: ImportState(carried=Carried(imported=1))
    assert await written("write") is None
