"""A replica that is asked to watch MCP servers: who may ask, what it answers, and what it counts."""

import json
import threading
import time

import pytest

from mcp_lists import Listing, definition, modern
from mcp_upstream import running
from registry_harness import RunningRegistry, running_registry
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.features import SERVER_IMPORTS
from toolcrib.wire.imports import (
    ListRequest,
    ServerList,
    ServerOutcome,
    ServersReport,
    ServersRequest,
    ServerWanted,
)
from toolcrib.wire.publish import ReplicaState

ROUTE = "/v1/admin/servers"


def asked(r: RunningRegistry, *urls: str, epoch: int = 1, after: int = 0, wait: float = 0.0) -> ServersReport:
    servers = tuple(
        ServerWanted(server=f"team/server-{n}", backend=PublishedBackend(url=url), every=3600)
        for n, url in enumerate(urls)
    )
    body = ServersRequest(epoch=epoch, servers=servers, after=after, wait=wait).model_dump_json()
    answer = r.admin("POST", ROUTE, content=body)
    assert answer.status_code == 200, answer.text
    return ServersReport.model_validate(answer.json())


def settled(r: RunningRegistry, *urls: str) -> ServersReport:
    """The report once something is known of each."""
    report, deadline = ServersReport(), time.monotonic() + 30
    while not report.servers or any(row.outcome is ServerOutcome.PENDING for row in report.servers):
        assert time.monotonic() < deadline
        report = asked(r, *urls, after=report.counter, wait=5)
    return report


def test_the_tools_of_a_server_are_reported_handed_out_and_counted() -> None:
    listing = Listing([definition("read"), definition("write")])
    with running(modern(listing)) as up, running_registry() as r:
        report = settled(r, up.url, "http://127.0.0.1:1/mcp")
        good, dead = report.servers
        body = ListRequest(server=good.server, set_digest=good.set_digest or "").model_dump_json()
        answer = r.admin("POST", f"{ROUTE}/list", content=body)
        metrics = r.metrics()

        assert (good.outcome, good.tools) == (ServerOutcome.LISTED, 2)
        assert (dead.outcome, dead.set_digest) == (ServerOutcome.UNREACHABLE, None)
        assert [t.name for t in ServerList.model_validate(answer.json()).tools] == ["read", "write"]
        assert 'toolcrib_server_up{server="server-0",server_namespace="team"} 1.0' in metrics
        assert 'toolcrib_server_up{server="server-1",server_namespace="team"} 0.0' in metrics
        assert 'toolcrib_server_lists_total{outcome="Listed"} 1.0' in metrics

        asked(r, up.url)
        assert 'server="server-1"' not in r.metrics(), "a server that is not watched any more is no series"


def test_another_replica_takes_over_with_the_same_digests_where_the_named_one_goes() -> None:
    listing = Listing([definition("read"), definition("write")])
    with running(modern(listing)) as up, running_registry() as second:
        with running_registry() as first:
            before = settled(first, up.url).servers[0]
            assert asked(second).servers == (), "a replica that is not named knows nothing"
        began = time.monotonic()
        after = settled(second, up.url).servers[0]

    assert time.monotonic() - began < 15
    assert (after.outcome, after.set_digest) == (ServerOutcome.LISTED, before.set_digest)


def test_a_list_that_is_not_held_is_refused() -> None:
    with running(modern(Listing())) as up, running_registry() as r:
        settled(r, up.url)
        for server, digest in (("team/server-0", "sha256:0"), ("team/none", "sha256:0")):
            body = ListRequest(server=server, set_digest=digest).model_dump_json()
            answer = r.admin("POST", f"{ROUTE}/list", content=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_listed")


def test_a_waiting_request_is_answered_with_the_change_that_it_waits_for() -> None:
    listing = Listing()
    up = modern(listing)
    with running(up), running_registry() as r:
        report = settled(r, up.url)
        while not report.servers[0].listening:
            report = asked(r, up.url, after=report.counter, wait=5)
        found: list[ServersReport] = []
        waiting = threading.Thread(
            target=lambda: found.append(asked(r, up.url, after=report.counter, wait=25))
        )
        began = time.monotonic()
        waiting.start()
        listing.tools = [definition("read"), definition("write")]
        up.tell(listing.tell)
        waiting.join(30)

    assert time.monotonic() - began < 20
    assert found[0].servers[0].tools == 2


def test_a_former_leader_is_refused_and_changes_nothing() -> None:
    with running(modern(Listing())) as up, running_registry() as r:
        settled(r, up.url)
        r.admin("POST", "/v1/admin/credentials", content=json.dumps({"epoch": 5}))
        stale = ServersRequest(epoch=4).model_dump_json()
        answer = r.admin("POST", ROUTE, content=stale)
        assert (answer.status_code, answer.json()["code"]) == (409, "epoch_fenced")
        assert asked(r, up.url, epoch=5).servers[0].outcome is ServerOutcome.LISTED


@pytest.mark.parametrize("path", [ROUTE, f"{ROUTE}/list"])
def test_only_the_operator_may_ask(path: str) -> None:
    with running_registry() as r:
        for headers in ({}, r.auth("team", "bot"), r.admin_auth(subject="system:serviceaccount:team:bot")):
            answer = r.http.post(
                r.admin_url + path, content="{}", headers={**headers, "content-type": "application/json"}
            )
            assert answer.status_code in (401, 403)
            outside = r.http.post(r.url + path, content="{}", headers=headers)
            assert outside.status_code in (401, 404)


def test_a_replica_says_that_it_imports() -> None:
    with running_registry() as r:
        state = ReplicaState.model_validate(r.admin("GET", "/v1/admin/state").json())
    assert SERVER_IMPORTS in state.features


def test_a_registry_that_stops_answers_those_who_wait() -> None:
    with running(modern(Listing())) as up, running_registry() as r:
        report = settled(r, up.url)
        while not report.servers[0].listening:
            report = asked(r, up.url, after=report.counter, wait=5)
        done: list[float] = []

        def wait() -> None:
            asked(r, up.url, after=report.counter, wait=25)
            done.append(time.monotonic())

        waiting = threading.Thread(target=wait)
        waiting.start()
        began = time.monotonic()
        r.registry.deps.state.close()
        waiting.join(20)

    assert done
    assert done[0] - began < 15
