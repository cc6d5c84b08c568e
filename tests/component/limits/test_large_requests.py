"""One agent's large calls of a slow tool on a running registry: what is held is bounded, and others' are answered."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from holding import HELD, holding_backend
from realparts.processes import wait_until
from registry_harness import backend, binding, mint, tool
from registry_process import configuration, process

BODY = json.dumps({"a": [{"": 0}] * 90_000}).encode()
MOST = (4 << 20) // len(BODY)
"""Such bodies of one agent at one time."""


def test_large_bodies_of_one_agent_are_bounded_and_others_are_answered(tmp_path: Path) -> None:
    assert len(BODY) > 800_000
    with holding_backend() as shared:
        tools = (
            tool("slow", backend=backend(shared.port, HELD, timeout=120.0)),
            tool("quick", backend=backend(shared.port, "/quick")),
        )
        bindings = tuple(binding(name, ("slow:use", "quick:use")) for name in ("greedy", "modest"))
        with process(configuration(tmp_path, egress={"loopback": True})) as registry:
            registry.publish(*tools, bindings=bindings)

            def call(account: str, name: str, body: bytes = BODY) -> httpx.Response:
                token = mint(f"system:serviceaccount:team:{account}")
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                return httpx.post(f"{registry.url}/tools/{name}", headers=headers, content=body, timeout=60)

            with ThreadPoolExecutor(20) as pool:
                calls = [pool.submit(call, "greedy", "slow") for _ in range(20)]
                wait_until(lambda: shared.held == MOST, 60)
                assert call("modest", "quick").status_code == 200
                assert call("greedy", "quick", b"{}").status_code == 200
                wait_until(lambda: sum(c.done() for c in calls) == len(calls) - MOST, 60)
                assert shared.came[HELD] == MOST
                refused = [c.result() for c in calls if c.done()]
                wait_until(lambda: (shared.answer() or True) and all(c.done() for c in calls), 60)
            assert {r.status_code for r in refused} == {503}
            assert {r.json()["code"] for r in refused} == {"large_requests_busy"}
            assert {r.headers["retry-after"] for r in refused} == {"1"}
