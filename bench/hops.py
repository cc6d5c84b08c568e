"""The whole hop of a call to an MCP server: client, registry, server; beside the server alone and FastMCP's proxy.

Two servers of 1,000 tools (200 in a quick run), of the Python SDK: one of 2025-11-25 with sessions, one of 2026-07-28. Registry, servers and
proxies are processes of their own. The registry checks tokens, grants and arguments, and keeps a decision log; the proxies
do nothing of that.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import measure
from measure import Talker, Variant

from mcp_peers import environments
from mcp_requests import rpc
from realparts import processes
from registry_harness import ISSUER, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import PublishedSubject

CPU_MS, ADDED_MS = 0.8, 0.7
SLOWER = {"2025-11-25": 1.9, "2026-07-28": 3.2}
"""The most that the median call may take, of the direct one's time, by revision."""
RATE = {"2025-11-25": 0.9, "2026-07-28": 0.45}
"""The least share of the direct calls a second, 16 at a time."""
ROUGHLY = 2.0
"""By how much a quick run may miss these ratios, on a machine with other work. Times are not judged then."""
TOOLS, FEW = 1_000, 200
"""Of each server; in a quick run, since FastMCP's proxy reads the whole list for each call."""
AT_ONCE = 16
REQUESTS = 64
"""Different ids: a session takes each once at a time."""
SCRIPT = Path(__file__).parent / "mcp_upstream.py"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
_BOTH = "application/json, text/event-stream"
_DIRECT, _OURS, _THEIRS = "direct", "Toolcrib", "FastMCP's proxy"
_SERVERS = {"2025-11-25": "earlier", "2026-07-28": "current"}


@dataclass(frozen=True)
class Place:
    """A process that speaks MCP at a path of a port."""

    port: int
    pid: int
    path: str = "/mcp"
    token: str = ""


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    try:
        for name in environments.PYTHON:
            environments.python(name)
    except environments.PeersMissingError as error:
        if environments.required():
            raise
        print(f"  hops: skipped. {error}")
        return {"skipped": str(error)}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        count = FEW if quick else TOOLS
        load = stack.enter_context(Talker("load.py", log=folder / "load.log"))
        direct = {
            v: stack.enter_context(_server(env, env, str(count), folder)) for v, env in _SERVERS.items()
        }
        urls = {v: f"http://127.0.0.1:{place.port}/mcp" for v, place in direct.items()}
        proxies = {
            v: stack.enter_context(_server("current", "proxy", url, folder)) for v, url in urls.items()
        }
        registry = stack.enter_context(_registry(folder, urls, count))
        ways = {
            version: {
                _DIRECT: direct[version],
                _OURS: Place(registry.agents, registry.child.pid, "/mcp/direct", _token()),
                _THEIRS: proxies[version],
            }
            for version in _SERVERS
        }
        return {"tools": count, **_measured(load, registry.child.pid, ways, quick)}


def _measured(load: Talker, pid: int, ways: dict[str, dict[str, Place]], quick: bool) -> dict[str, Any]:
    alone, crowd = dict[str, list[Variant]](), dict[str, list[Variant]]()
    for version, places in ways.items():
        requests = {name: _requests(place, version) for name, place in places.items()}
        made = [
            [Variant(n, places[n].port, r, pid=places[n].pid) for n, r in requests.items()] for _ in range(2)
        ]
        # the proxy is not asked 16 at a time: it needs a second of its core for one call
        alone[version], crowd[version] = made[0], [each for each in made[1] if each.name != _THEIRS]
    seconds, count = (0.4, 4) if quick else (0.7, 8)
    for group, connections in ((alone, 1), (crowd, AT_ONCE)):
        variants = [variant for each in group.values() for variant in each]
        fast = [variant for variant in variants if variant.name != _THEIRS]
        measure.rounds(load, pid, fast, count=count, seconds=seconds, connections=connections)
        if slow := [variant for variant in variants if variant.name == _THEIRS]:
            measure.rounds(load, pid, slow, count=2, seconds=seconds, connections=connections)
    figures: dict[str, Any] = {}
    missed = []
    for version in ways:
        single, many = {v.name: v for v in alone[version]}, {v.name: v for v in crowd[version]}
        found = figures[version] = {name: _figures(each, many.get(name)) for name, each in single.items()}
        base = found[_DIRECT]
        for name, each in found.items():
            each["p50_to_direct"] = _ratio(single[name].p50s, single[_DIRECT].p50s)
            each["added_ms"] = each["p50_ms"] - base["p50_ms"]
            if name in many:
                each["rate_to_direct"] = _ratio(many[name].rates, many[_DIRECT].rates)
        _print(version, found)
        missed += _missed(version, found, quick)
    factor = ROUGHLY if quick else 1.0
    slower = ", ".join(f"{v}: p50 ≤ {SLOWER[v] * factor:g}×, rate ≥ {RATE[v] / factor:g}×" for v in SLOWER)
    times = "" if quick else f"CPU ≤ {CPU_MS:g} ms, p50 + ≤ {ADDED_MS:g} ms; "
    measure.verdict(f"{times}{slower}", missed)
    return {**figures, "missed": missed}


def _figures(single: Variant, many: Variant | None) -> dict[str, float]:
    found = {"p50_ms": statistics.median(single.p50s) * 1e3, "cpu_ms": statistics.median(single.costs) * 1e3}
    if many is not None:
        found |= {"rate": statistics.median(many.rates), "cpu_ms": statistics.median(many.costs) * 1e3}
    return found


def _ratio(top: Sequence[float], bottom: Sequence[float]) -> float:
    """Round by round where there are as many, else of the medians."""
    if len(top) == len(bottom):
        return measure.ratios(top, bottom)[0]
    return statistics.median(top) / statistics.median(bottom)


def _print(version: str, found: dict[str, dict[str, float]]) -> None:
    heads = [
        "",
        "p50 ms",
        "added",
        "of direct",
        f"a second, {AT_ONCE} at a time",
        "of direct",
        "CPU ms of it",
    ]
    rows = [
        [
            name,
            f"{f['p50_ms']:.2f}",
            f"{f['added_ms']:+.2f}",
            f"{f['p50_to_direct']:.2f}",
            f"{f['rate']:,.0f}" if "rate" in f else "",
            f"{f['rate_to_direct']:.2f}" if "rate" in f else "",
            f"{f['cpu_ms']:.2f}",
        ]
        for name, f in found.items()
    ]
    measure.table(f"A call of a tool, {version}", heads, rows)


def _missed(version: str, found: dict[str, dict[str, float]], quick: bool) -> list[str]:
    ours, factor = found[_OURS], ROUGHLY if quick else 1.0
    missed = []
    if ours["p50_to_direct"] > SLOWER[version] * factor:
        missed.append(f"{version}: p50 {ours['p50_to_direct']:.2f} times the direct one")
    if ours["rate_to_direct"] < RATE[version] / factor:
        missed.append(f"{version}: {ours['rate_to_direct']:.2f} of the direct rate")
    if not quick:
        added = ours["added_ms"]
        missed += [f"{version}: CPU {ours['cpu_ms']:.2f} ms"] if ours["cpu_ms"] > CPU_MS else []
        missed += [f"{version}: p50 +{added:.2f} ms"] if added > ADDED_MS else []
    return missed


def _token() -> str:
    return mint("system:serviceaccount:team:bot")


def _requests(place: Place, version: str) -> list[bytes]:
    """Calls of one tool with different ids, in a session where the server has one."""
    name = f"{_SERVERS[version]}-00000" if place.token else "tool-00000"
    fields = {"accept": _BOTH, "content-type": "application/json", "host": f"127.0.0.1:{place.port}"}
    if place.token:
        fields["authorization"] = f"Bearer {place.token}"
    elif version == "2025-11-25":
        fields["mcp-session-id"] = _session(place, version, fields)
    made = []
    for number in range(REQUESTS):
        body, more = rpc(version, "tools/call", {"name": name, "arguments": {"a": 20, "b": 22}})
        content = json.dumps({**body, "id": number + 1}).encode()
        lines = [f"POST {place.path} HTTP/1.1", *(f"{k}: {v}" for k, v in {**fields, **more}.items())]
        made.append("\r\n".join((*lines, f"content-length: {len(content)}", "", "")).encode() + content)
    return made


def _session(place: Place, version: str, fields: dict[str, str]) -> str:
    """A session of a server of the handshake era."""
    about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    body, more = rpc(version, "initialize", about)
    url = f"http://127.0.0.1:{place.port}{place.path}"
    with httpx.Client(trust_env=False, timeout=60) as client:
        answer = client.post(url, json=body, headers={**fields, **more})
        session = answer.headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        client.post(url, json=told, headers={**fields, **more, "mcp-session-id": session})
    return str(session)


@contextlib.contextmanager
def _server(environment: str, kind: str, argument: str, folder: Path) -> Iterator[Place]:
    """A process of `mcp_upstream.py`."""
    with (folder / f"{kind}.out").open("ab") as log:
        child = processes.spawn(
            [str(environments.python(environment)), "-P", "-W", "ignore", str(SCRIPT), kind, argument],
            cwd=folder,
            env=processes.clean_environment({"HOME": str(folder)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, (folder / f"{kind}.out").read_text()
            port = int(line)
            processes.wait_until(lambda: processes.listening(port), 60)
            yield Place(port, child.pid)
        finally:
            processes.end(child)
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()


@contextlib.contextmanager
def _registry(folder: Path, urls: dict[str, str], count: int) -> Iterator[RegistryProcess]:
    """A registry with the tools of both servers, all of them visible to `bot`, and a decision log."""
    key = folder / "audit.key"
    key.write_text("5" * 64)
    key.chmod(0o600)
    audit = {"path": str(folder / "decisions.jsonl"), "key_file": str(key)}
    config = configuration(folder / "registry", audit=audit, egress={"loopback": True})
    everybody = PublishedSubject(
        kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts:team", namespace=None
    )
    tools = [
        tool(
            f"{name}-{number:05}",
            server=name,
            scopes=("use",),
            input_schema=SCHEMA,
            backend=PublishedBackend(
                url=urls[version],
                timeout=30,
                mcp=PublishedMcp(server=f"team/{name}", tool=f"tool-{number:05}"),
            ),
        )
        for version, name in _SERVERS.items()
        for number in range(count)
    ]
    with process(config) as registry:
        registry.publish(*tools, bindings=(binding("all", ("use",), subjects=(everybody,)),))
        yield registry
