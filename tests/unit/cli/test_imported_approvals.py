"""What is approved of imported tools in the local mode: the first list of a server, and nothing that joins later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manifests import manifest, tool
from toolcrib.resources import Tool, ToolServer, parse
from toolcrib_cli.local.approvals import Approvals

SERVER = parse(
    manifest(
        "ToolServer", "files", "heist", mcp={"url": "http://127.0.0.1:9/mcp"}, defaults={"scopes": ["a:b"]}
    )
)


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
