"""Whom 1,024 slow calls of one agent delay: another agent's calls, to the same backend and to another one.

In each round the same calls are measured with the registry idle and while the slow ones are held at their backend.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from measure import Talker, http, percentile, ratios, settle, table

SLOW_CALLS = 1_024
CONNECTIONS = 4
GOAL = 1.5
"""Times the p99 of the idle registry."""
TOOLS = {"quick": "the slow calls' backend", "elsewhere": "another backend"}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from holding import HELD, crowd, holding_backend
    from realparts.processes import wait_until
    from registry_harness import backend, binding, mint, tool
    from registry_process import configuration, process

    rounds, seconds = (3, 1.0) if quick else (9, 4.0)
    everything = ("slow:use", "quick:use", "elsewhere:use")
    bindings = (binding("greedy", everything), binding("modest", everything))
    found: dict[str, dict[str, list[float]]] = {name: {} for name in TOOLS}
    told: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name, holding_backend() as shared, holding_backend() as other:
        folder = Path(name)
        tools = (
            tool("slow", backend=backend(shared.port, HELD, timeout=300.0)),
            tool("quick", backend=backend(shared.port, "/quick")),
            tool("elsewhere", backend=backend(other.port, "/elsewhere")),
        )
        config = configuration(folder / "registry", egress={"loopback": True})
        with process(config) as registry, Talker("load.py", log=folder / "load.log") as load:
            registry.publish(*tools, bindings=bindings)
            greedy, modest = (mint(f"system:serviceaccount:team:{each}") for each in ("greedy", "modest"))

            def measure(state: str, keep: bool) -> None:
                for each in TOOLS:
                    request = http("POST", f"/tools/{each}", modest, {})
                    answer = load.ask(
                        {
                            "host": "127.0.0.1",
                            "port": registry.agents,
                            "request": [base64.b64encode(request).decode()],
                            "connections": CONNECTIONS,
                            "seconds": seconds,
                        }
                    )
                    for figure in ("p50", "p99") if keep else ():
                        found[each].setdefault(f"{state} {figure}", []).append(answer[figure])

            measure("idle", False)
            for _ in range(rounds):
                settle(registry.child.pid)
                measure("idle", True)
                with crowd(registry.agents, greedy, "slow", SLOW_CALLS) as calls:
                    wait_until(
                        lambda c=calls: c.statuses.total() + 256 >= SLOW_CALLS and shared.held >= 64, 60
                    )
                    told = {"held": shared.held, "refused": calls.statuses[429]}
                    settle(registry.child.pid)
                    measure("held", True)

                    def over(c: Any = calls) -> bool:
                        shared.answer()
                        return c.statuses.total() == SLOW_CALLS

                    wait_until(over, 60)
    rows, figures, missed = [], dict[str, Any](told), []
    for each, where in TOOLS.items():
        of = found[each]
        ratio = ratios(of["held p99"], of["idle p99"])
        middle = {key: percentile(values, 0.5) * 1000 for key, values in of.items()}
        figures[each] = {"milliseconds": middle, "p99 ratio": ratio}
        shown = [f"{middle[key]:.2f} ms" for key in ("idle p50", "idle p99", "held p50", "held p99")]
        rows.append((where, *shown, f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"))
        if ratio[0] > GOAL:
            missed.append(where)
    table(
        f"Another agent's calls, {CONNECTIONS} at a time, while one agent has sent {SLOW_CALLS:,} slow calls: {told['held']} are at the "
        f"backend, {256 - told['held']} wait, {told['refused']} were refused (429)",
        ("to", "idle p50", "p99", "held p50", "p99", "p99 held / idle"),
        rows,
    )
    if missed:
        raise RuntimeError(f"p99 above {GOAL:g} times that of the idle registry: {', '.join(missed)}")
    return figures
