"""What MCP servers of a cluster get from a registry with its defaults: sizes, no process, no questions about definitions."""

import sys
from pathlib import Path

import pytest

from imported import imported, toolserver
from mcp_client import VERSIONS, McpClient
from mcp_lists import Listing, definition, modern
from mcp_upstream import Wire, running, stateless
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.backends import PublishedBackend, PublishedMcp, PublishedProgram
from toolcrib.wire.imports import ServerOutcome, ServersReport, ServersRequest, ServerWanted
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.settings_limits import Limits
from toolcrib_registry.upstream.servers import Bounds

MIB = 1 << 20


def asked(r: RunningRegistry, path: str, **body: object) -> tuple[int, str]:
    """The status, and the code of a problem."""
    answer = r.http.post(r.url + path, headers=r.auth("team", "bot"), json=body)
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]


def test_a_request_has_four_megabytes_and_an_answer_eight_unless_the_settings_say_otherwise() -> None:
    """That the settings hold is told beside the calls; arguments alone do not fill a request."""
    size = 0

    async def answer(wire: Wire) -> None:
        await wire.result(content=[{"type": "text", "text": "x" * size}])

    with (
        running_registry(bindings=[binding("bot", ("ask:use",))]) as r,
        running(stateless(tools_call=answer)) as up,
    ):
        mcp = PublishedMcp(server="team/files", tool="ask")
        r.publish([tool("ask", backend=PublishedBackend(url=up.url, mcp=mcp))])
        size = 8 * MIB - 4_096
        assert asked(r, "/v1/call", tool="ask") == (200, "")
        size = 8 * MIB
        assert asked(r, "/v1/call", tool="ask") == (502, "upstream_too_large")

    limits, bounds = Limits(), Bounds()
    assert limits.mcp_request_bytes == bounds.request_bytes == 4 * MIB
    assert limits.mcp_answer_bytes == bounds.answer_bytes == 8 * MIB


def test_a_registry_of_a_cluster_starts_no_command_for_a_call_or_an_import(tmp_path: Path) -> None:
    """Whatever is published to it: the operator and admission refuse such servers before."""
    started = tmp_path / "started"
    command = (sys.executable, "-c", f"open({str(started)!r}, 'w')")
    program = PublishedBackend(program=PublishedProgram(server="team/files", command=command))
    called = program.model_copy(update={"mcp": PublishedMcp(server="team/files", tool="ask")})
    with running_registry([tool("ask", backend=called)], [binding("bot", ("ask:use",))]) as r:
        assert asked(r, "/v1/call", tool="ask") == (502, "egress_refused")
        wanted = ServerWanted(server="team/files", backend=program, every=3600)
        report = ServersReport()
        while not report.servers or report.servers[0].outcome is ServerOutcome.PENDING:
            request = ServersRequest(epoch=1, seconds=600, servers=(wanted,), wait=5, after=report.counter)
            answer = r.admin("POST", "/v1/admin/servers", content=request.model_dump_json())
            report = ServersReport.model_validate(answer.json())

    assert report.servers[0].outcome is ServerOutcome.EGRESS_REFUSED
    assert not started.exists()


@pytest.mark.parametrize("version", [VERSIONS[-2], VERSIONS[-1]])
def test_a_server_is_asked_for_no_definition_and_a_new_one_is_told_at_the_next_revision(version: str) -> None:
    def described(text: str) -> dict[str, object]:
        return {"type": "object", "properties": {"path": {"type": "string", "description": text}}}

    listing = Listing([definition("read", inputSchema=described("The first one."))])
    with (
        running(modern(listing)) as up,
        running_registry(bindings=[binding("bot", ("files:use",))]) as r,
    ):
        server, client = toolserver("files", up.url), McpClient(r, version, "/mcp")

        def told() -> set[str]:
            """How the argument is described, wherever a definition is told."""
            headers = r.auth("team", "bot")
            over_http = r.http.post(
                f"{r.url}/v1/load", headers=headers, json={"tools": ["files:read"]}
            ).json()
            by_http = r.http.post(f"{r.url}/v1/describe", headers=headers, json={"tool": "files:read"}).json()
            found = [
                {"inputSchema": by_http["input_schema"]},
                client.value("describe_tool", {"tool_id": "files:read"}),
                *client.value("load_tools", {"tool_ids": ["files:read"]})["tools"],
                *over_http["tools"],
            ]
            assert len(found) == 4
            return {each["inputSchema"]["properties"]["path"]["description"] for each in found}

        first = imported(r, server)["files"].tools
        requests = len(up.wires)
        assert requests > 0
        for _ in range(5):
            assert told() == {"The first one."}
        assert len(up.wires) == requests

        async def change() -> None:
            await listing.change([definition("read", inputSchema=described("The second one."))])

        looks = len(up.of("tools/list"))
        up.tell(change)
        up.tell(lambda: up.arrived("tools/list", looks + 1))
        assert told() == {"The first one."}, "until the operator has published it"
        wait_until(lambda: imported(r, server)["files"].tools != first)
        requests = len(up.wires)
        for _ in range(5):
            assert told() == {"The second one."}
        assert len(up.wires) == requests


def test_calls_take_server_and_name_and_say_which_ids_a_shared_one_may_mean() -> None:
    with running(stateless()) as up:

        def made(namespace: str, server: str, word: str = "read") -> PublishedTool:
            backend = PublishedBackend(url=up.url, mcp=PublishedMcp(server=f"{namespace}/{server}", tool=f"{namespace} {server}"))  # fmt: skip
            name = f"{server}-{word}"
            return tool(word, namespace=namespace, object_name=name, server=server, scopes=("s",), backend=backend)  # fmt: skip

        tools = [made("red", "files"), made("blue", "web"), made("red", "web"), made("red", "files", "vault")]
        tools[-1] = tools[-1].model_copy(update={"scopes": ("other",)})
        grants = [binding("bot", ("s",), namespace=n) for n in ("red", "blue")]
        with running_registry(tools, grants) as r:
            client, headers = McpClient(r, path="/mcp"), r.auth("team", "bot")

            def ids(name: str) -> list[object]:
                by_name = r.http.post(f"{r.url}/tools/{name}", headers=headers, json={})
                by_call = r.http.post(f"{r.url}/v1/call", headers=headers, json={"tool": name})
                assert (by_name.status_code, by_call.status_code) == (409, 409)
                assert (by_name.json()["code"], by_call.json()["code"]) == ("ambiguous_name",) * 2
                return [by_name.json()["tool_ids"], by_call.json()["tool_ids"]]

            assert r.http.post(f"{r.url}/tools/files:read", headers=headers, json={"q": 1}).json() == {"q": 1}
            assert asked(r, "/v1/call", tool="files:read", arguments={"q": 2}) == (200, "")
            found = client.call("call_tool", {"tool_id": "files:read", "args": {"q": 3}})
            assert found["structuredContent"] == {"q": 3}
            assert [w.message["params"]["name"] for w in up.of("tools/call")] == ["red files"] * 3

            assert ids("web:read") == [["blue/web-read", "red/web-read"]] * 2
            shared = client.call("call_tool", {"tool_id": "web:read"})
            assert (shared["isError"], shared["_meta"]["toolcrib.dev/code"]) == (True, "ambiguous_name")
            assert "blue/web-read, red/web-read" in shared["content"][0]["text"]
            for hidden in ("files:vault", "files:absent", "none:read"):
                assert asked(r, f"/tools/{hidden}") == asked(r, "/v1/call", tool=hidden) == (403, "not_permitted")  # fmt: skip
                assert client.error("tools/call", {"name": "call_tool", "arguments": {"tool_id": hidden}})[2] == "Unknown tool"  # fmt: skip
            assert len(up.of("tools/call")) == 3
