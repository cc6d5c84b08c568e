"""What operator and replica say to each other about the tools of MCP servers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from toolcrib import publishing
from toolcrib.resources.servers import ToolServer
from toolcrib.wire.backends import PublishedBackend, SecretReference
from toolcrib.wire.imports import (
    MOST_SERVERS,
    ListedTool,
    ServerList,
    ServerOutcome,
    ServerSeen,
    ServersReport,
    ServersRequest,
    ServerWanted,
)

WANTED = ServerWanted(server="team-a/files", backend=PublishedBackend(url="https://files.example/mcp"))


def server(**mcp: object) -> ToolServer:
    return ToolServer.model_validate(
        {
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": "ToolServer",
            "metadata": {"name": "files", "namespace": "team-a"},
            "spec": {"mcp": mcp, "defaults": {"scopes": ["files:use"]}},
        }
    )


def test_a_request_and_its_report_survive_the_wire() -> None:
    request = ServersRequest(epoch=3, servers=(WANTED,), wait=25.0, after=7)
    report = ServersReport(
        counter=8,
        servers=(
            ServerSeen(server="team-a/files", outcome=ServerOutcome.LISTED, set_digest="sha256:0", tools=2),
        ),
    )
    assert ServersRequest.model_validate_json(request.model_dump_json()) == request
    assert ServersReport.model_validate_json(report.model_dump_json()) == report


def test_a_list_is_written_in_the_words_of_mcp_and_read_back() -> None:
    tool = ListedTool(name="read", input_schema={"type": "object"}, meta={"a": 1}, icons=({"src": "data:,"},))
    listed = ServerList(server="team-a/files", set_digest="sha256:0", tools=(tool,))
    written = listed.model_dump(mode="json", exclude_none=True)["tools"][0]
    assert set(written) == {"name", "description", "inputSchema", "_meta", "icons"}
    assert ServerList.model_validate_json(listed.model_dump_json()) == listed


def test_a_newer_replica_may_say_more_than_this_version_knows() -> None:
    seen = ServersReport.model_validate({"counter": 1, "servers": [{"server": "a/b", "mood": "fine"}]})
    assert seen.servers[0].outcome is ServerOutcome.PENDING


@pytest.mark.parametrize("name", ["files", "a/b/c", "/files", "team-a/"])
def test_a_server_without_a_namespace_and_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ServerWanted(server=name, backend=WANTED.backend)


def test_more_servers_than_one_request_may_name_are_refused() -> None:
    wanted = [WANTED.model_copy(update={"server": f"team-a/s{n}"}) for n in range(MOST_SERVERS + 1)]
    with pytest.raises(ValidationError):
        ServersRequest(epoch=1, servers=tuple(wanted))
    assert len(ServersRequest(epoch=1, servers=tuple(wanted[1:])).servers) == MOST_SERVERS


def test_a_request_cannot_be_kept_waiting_for_longer_than_25_seconds() -> None:
    with pytest.raises(ValidationError):
        ServersRequest(epoch=1, wait=25.1)


def test_only_what_a_server_did_counts_as_asked() -> None:
    unasked = {o for o in ServerOutcome if not o.asked}
    assert unasked == {
        ServerOutcome.PENDING,
        ServerOutcome.EGRESS_REFUSED,
        ServerOutcome.NO_ADDRESS,
        ServerOutcome.CREDENTIAL_PENDING,
        ServerOutcome.CREDENTIAL_REFUSED,
    }


def test_a_server_is_asked_where_its_tools_are_called() -> None:
    auth = {"type": "Bearer", "secretKeyRef": {"name": "token", "key": "value"}}
    found = publishing.server_backend(
        server(service={"name": "files", "port": 8080}, timeout="7s", auth=auth), "10.0.0.7"
    )
    assert (found.service, found.service_port, found.cluster_ip) == ("team-a/files", 8080, "10.0.0.7")
    assert (found.path, found.timeout, found.mcp, found.asserted) == ("/mcp", 7.0, None, True)
    assert found.auth is not None
    assert found.auth.secret == SecretReference(namespace="team-a", name="token", key="value")


def test_a_url_is_asked_as_it_stands() -> None:
    found = publishing.server_backend(server(url="https://files.example/mcp"), "10.0.0.7")
    assert (found.url, found.service, found.cluster_ip) == ("https://files.example/mcp", None, None)
