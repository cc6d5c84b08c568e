"""Arguments that take long to check are refused, and other callers are served meanwhile."""

import json
import threading
import time
from typing import Any

import httpx

from registry_harness import backend, binding, running_registry, tool

BRANCHES = {"properties": {"l": {"items": {"anyOf": [{"const": f"k{i}"} for i in range(2_000)]}}}}
OPTIONS = {"properties": {"l": {"items": {"enum": [i + 0.5 for i in range(4_000)]}}}}
UNIQUE = {"properties": {"l": {"uniqueItems": True}}}
PATTERN = {"properties": {"s": {"pattern": "[ab]*a[ab]{4000}c"}}}
PATTERNS = {"patternProperties": {f"[ab]*a[ab]{{{300 + i}}}c": {} for i in range(20)}}
NASTY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "branches": (BRANCHES, {"l": ["k1999"] * 20_000}),
    "options": (OPTIONS, {"l": [3.5] * 20_000}),
    "unique": (UNIQUE, {"l": [2**64 + i for i in range(4_000)]}),
    "pattern": (PATTERN, {"s": "ab" * 15_000 + "bc"}),
    "names": (PATTERNS, {"ab" * 200 + str(i): 1 for i in range(200)}),
}
CALLERS = 16
CALLS = 3


def test_while_callers_send_what_takes_long_to_check_another_is_answered() -> None:
    tools = [
        tool(name, scopes=("calculator:use",), backend=backend(9), input_schema={"type": "object", **schema})
        for name, (schema, _) in NASTY.items()
    ]
    bodies = {name: json.dumps(arguments).encode() for name, (_, arguments) in NASTY.items()}
    codes: list[str] = []
    with running_registry(tools, [binding("bot")]) as r:
        headers = {**r.auth("team", "bot"), "content-type": "application/json"}

        def send(first: int) -> None:
            with httpx.Client(timeout=60) as client:
                for i in range(CALLS):
                    name = list(bodies)[(first + i) % len(bodies)]
                    answer = client.post(f"{r.url}/tools/{name}", headers=headers, content=bodies[name])
                    codes.append(answer.json()["code"])

        threads = [threading.Thread(target=send, args=(i,)) for i in range(CALLERS)]
        longest = 0.0
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            started = time.monotonic()
            assert r.http.get(r.url, headers=headers).status_code == 200
            longest = max(longest, time.monotonic() - started)
        for thread in threads:
            thread.join()

    assert set(codes) == {"arguments_too_complex"}
    assert len(codes) == CALLERS * CALLS
    assert longest < 3.0, "one such call alone took longer before"
