"""Servers of a view as server.json documents: one for each server of a visible tool, and Toolcrib's own."""

import re
from typing import Any

from registry_harness import binding, tool
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.version import __version__
from toolcrib.view import EMPTY, View, view_of
from toolcrib.wire.publish import Publish, PublishedTool, Revision
from toolcrib_registry.policy import servers

BASE = "https://crib.example"
FILES, READ = "dev.toolcrib.team/files", "read_file"


def seen(*tools: PublishedTool) -> View:
    """The view of one who may use all of them."""
    step = Publish(
        base=None,
        to=Revision(epoch=1, seq=1),
        tools=tools,
        bindings=(binding("bot", sorted({s for t in tools for s in t.scopes}), namespace=None),),
    )
    identity = Identity(
        issuer="https://issuer.test", subject="system:serviceaccount:team:bot", expires_at=1e12, cluster=True
    )
    return view_of(identity, Snapshot().apply(step), 1.0)


def found(*tools: PublishedTool) -> Any:
    return servers.of(seen(*tools), BASE)


def test_tools_of_one_server_are_one_document() -> None:
    both = found(tool("read_file", server="files"), tool("write_file", server="files"), tool("alone"))

    assert list(both) == [FILES, servers.OWN]
    assert both[FILES]["description"] == "2 tools of files in team, served at dev.toolcrib/toolcrib"
    assert both[FILES]["title"] == "team/files"
    assert both[FILES]["_meta"]["dev.toolcrib/server"] == {
        "namespace": "team", "server": "files", "tools": 2, "via": servers.OWN,
    }  # fmt: skip
    assert "remotes" not in both[FILES]


def test_servers_of_two_namespaces_are_two() -> None:
    both = found(tool("a", server="files"), tool("a", namespace="other", server="files"))

    assert list(both) == ["dev.toolcrib.other/files", FILES, servers.OWN]


def test_toolcrib_is_there_without_any_tool_and_says_where_to_connect() -> None:
    (own,) = servers.of(EMPTY, BASE).values()

    assert (own["name"], own["version"]) == ("dev.toolcrib/toolcrib", __version__)
    assert own["remotes"] == [
        {"type": "streamable-http", "url": "https://crib.example/mcp"},
        {"type": "streamable-http", "url": "https://crib.example/mcp/direct"},
    ]


def test_no_server_of_a_tool_takes_toolcribs_name() -> None:
    both = found(tool("a", namespace="toolcrib", server="toolcrib"), tool("b", server="toolcrib"))

    assert list(both) == ["dev.toolcrib.team/toolcrib", "dev.toolcrib.toolcrib/toolcrib", servers.OWN]
    assert both[servers.OWN]["title"] == "Toolcrib"


def test_a_version_names_what_is_visible_of_a_server() -> None:
    one, two = tool("read_file", server="files"), tool("write_file", server="files")

    def version(*tools: PublishedTool) -> str:
        return str(found(*tools)[FILES]["version"])

    assert version(one) == version(one, tool("elsewhere", namespace="other", server="files"))
    assert version(one) != version(one, two)
    assert version(one) != version(tool("read_file", server="files", description="Other words."))
    assert re.fullmatch(r"0\.0\.0-v[0-9a-f]{12}", version(one))


def test_the_longest_names_fit() -> None:
    name, server = "n" * 63, "s" * 63
    both = found(tool("a", namespace=name, server=server))

    document = both[f"dev.toolcrib.{name}/{server}"]
    assert len(document["description"]) <= 100
    assert len(document["title"]) <= 100
    assert len(document["name"]) <= 200
