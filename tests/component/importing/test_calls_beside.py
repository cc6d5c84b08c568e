"""Calls of a good server's tool take no longer because the lists of bad servers are read beside them."""

import time

import httpx
import pytest

from mcp_bad_servers import others
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.imports import ServersReport, ServersRequest, ServerWanted

CALLS, ROUNDS = 300, 3
FLOOR = 0.02
"""Seconds that a call may take on a busy machine, whatever happens beside it."""


def watch(r: RunningRegistry, urls: list[str]) -> ServersReport:
    servers = tuple(
        ServerWanted(server=f"team/s{n}", backend=PublishedBackend(url=url, timeout=5), every=10)
        for n, url in enumerate(urls)
    )
    body = ServersRequest(epoch=1, seconds=600, servers=servers).model_dump_json()
    return ServersReport.model_validate(r.admin("POST", "/v1/admin/servers", content=body).json())


def p99(r: RunningRegistry) -> float:
    """Of calls one after the other."""
    took = []
    with httpx.Client(headers=r.auth("team", "bot"), timeout=30) as client:
        for _ in range(CALLS):
            began = time.perf_counter()
            answer = client.post(f"{r.url}/v1/call", json={"tool": "team/read", "arguments": {"a": 1}})
            took.append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
    return sorted(took)[CALLS * 99 // 100]


@pytest.mark.long
def test_the_slowest_calls_of_a_good_server_take_at_most_twice_as_long_beside_bad_ones() -> None:
    with others() as (good, bad):
        backend = PublishedBackend(url=good, timeout=30, mcp=PublishedMcp(server="team/s0", tool="read"))
        published = [tool("read", scopes=("use",), backend=backend)]
        with running_registry(published, [binding("bot", ("use",))]) as r:
            alone, beside = [], []
            for _ in range(ROUNDS):
                watch(r, [good])
                alone.append(p99(r))
                watch(r, [good, *bad])
                beside.append(p99(r))
            report = watch(r, [good, *bad])
            said = {row.server: row.outcome.value for row in report.servers}
    print(f"p99 alone {min(alone) * 1e3:.2f} ms, beside {min(beside) * 1e3:.2f} ms, {said}")

    assert said["team/s0"] == "Listed"
    assert said["team/s2"] == "TooLarge"
    assert min(beside) <= max(2 * min(alone), FLOOR)
