"""How long the registry takes to say that it is healthy while 10,000 tools are embedded and indexed.

An idle registry in a process of its own is asked in turns with it, by new connections as a kubelet's are: what the machine
alone takes is no part of the verdict.
"""

from __future__ import annotations

import http.client
import tempfile
import time
from pathlib import Path
from typing import Any

TOOLS, QUICK = 10_000, 1_000
GOAL = 0.1
"""Seconds, at the 99th percentile, beyond what an idle registry takes then."""
ROUTES = ("/healthz", "/health")
_PAUSE = 0.02
_LOADED = 3600.0


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from measure import Talker, percentile, table, verdict

    count = QUICK if quick else TOOLS
    took: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        busy_folder, idle_folder = Path(name) / "busy", Path(name) / "idle"
        busy_folder.mkdir()
        idle_folder.mkdir()
        with (
            Talker("operated.py", str(busy_folder), "packaged", log=Path(name) / "busy.log") as busy,
            Talker("operated.py", str(idle_folder), "none", log=Path(name) / "idle.log") as idle,
        ):
            urls = {"embedding": busy.hello["url"], "idle": idle.hello["url"]}
            busy.ask({"tools": count})
            _until(busy, lambda state: state["published"])
            began = looked = time.monotonic()
            while True:
                for which, url in urls.items():
                    for route in ROUTES:
                        took.setdefault((which, route), []).append(_asked(url, route))
                time.sleep(_PAUSE)
                if time.monotonic() - looked > 1.0:
                    looked = time.monotonic()
                    if busy.ask({"state": True})["waiting"] == 0:
                        break
            seconds = time.monotonic() - began
    figures = {
        which: {
            route: {
                f"p{share * 100:.0f}": percentile(took[which, route], share) for share in (0.5, 0.95, 0.99)
            }
            | {"max": max(took[which, route])}
            for route in ROUTES
        }
        for which in urls
    }
    table(
        f"Asked for its health while {count:,} tools are embedded, ms; {len(took['idle', ROUTES[0]])} times each in {seconds:.0f} s",
        ["registry", "route", "p50", "p95", "p99", "max"],
        [
            [which, route, *(f"{value * 1e3:.1f}" for value in figures[which][route].values())]
            for which in urls
            for route in ROUTES
        ],
    )
    more = {r: figures["embedding"][r]["p99"] - figures["idle"][r]["p99"] for r in ROUTES}
    missed = [f"{route} {seconds * 1e3:.0f} ms" for route, seconds in more.items() if seconds > GOAL]
    verdict(f"p99 at most {GOAL * 1e3:g} ms more than an idle registry's", missed)
    return {"seconds": figures, "tools": count, "took": seconds, "missed": missed}


def _asked(url: str, route: str) -> float:
    """Seconds until the answer, by a new connection. Not by httpx: what a client of it costs is more than the answer."""
    host = url.removeprefix("http://")
    start = time.perf_counter()
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request("GET", route)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    finally:
        connection.close()
    return time.perf_counter() - start


def _until(child: Any, holds: Any) -> None:
    deadline = time.monotonic() + _LOADED
    while not holds(state := child.ask({"state": True})):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not loaded after {_LOADED:g} s: {state}")
        time.sleep(0.2)
