"""What the Model Context Protocol costs beside `/v1`: a call, a list, a large catalog, and memory over time.

Every registry is a process of its own, with tokens and a decision log with a key. Processor time is the process's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import statistics
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import measure
from measure import Talker, Variant

from mcp_requests import call_of, rpc
from registry_harness import ISSUER, backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject, PublishedTool

ADDED, LISTED, SHARE, GROWN = 0.15, 0.5, 0.10, 5.0
"""The bounds: ms of CPU that a call takes more than over `/v1/call`; ms of CPU that a list of 1,000 tools takes; the
share by which 2,651 tools may differ from 10; MiB from 10,000 calls to 100,000."""
ROUGHLY = {"calls": (0.5, 2.0), "pages": (0.5, 3.0), "catalog": (0.5, 2.0)}
"""Ratios that a quick run demands, on a machine with other work: a call to one over `/v1/call`, a page of a list to a
request for nothing, 2,651 tools to 10."""
ROUNDS, SLICES = 5, 5
"""A round is made of so many slices, all variants in turns: other work on the machine hits all of them alike."""
CONNECTIONS = 8
TOOLS, FEW, MANY, SEEN = 1_000, 10, 2_651, 10
IDENTITIES, CUT = 1_000, 200
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ARGUMENTS = {"expression": "6*7"}
SCHEMA = {
    "type": "object",
    "properties": {
        "expression": {"type": "string", "description": "What to work out."},
        "digits": {"type": "integer", "description": "Digits after the point."},
    },
    "required": ["expression"],
}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Talker("load.py", log=folder / "load.log") as load:
            figures = {
                **_calls(load, folder, quick),
                **_catalogs(load, folder, quick),
                **_memory(load, folder, quick),
            }
    if quick:
        return {**figures, "missed": _roughly_missed(figures)}
    missed = [
        *(f"a call over {k} by {v - ADDED:.3f} ms" for k, v in figures["added_ms"].items() if v > ADDED),
        *(f"a list in {k} by {v - LISTED:.2f} ms" for k, v in figures["list_ms"].items() if v > LISTED),
        *(f"{k}: {v:.2f} of it" for k, v in figures["large_to_small"].items() if abs(v - 1) > SHARE),
        *([f"memory by {figures['grown_mib'] - GROWN:.1f} MiB"] if figures["grown_mib"] > GROWN else []),
    ]
    bounds = f"{ADDED:g} ms a call, {LISTED:g} ms a list, {SHARE:.0%} of the catalog, {GROWN:g} MiB"
    measure.verdict(bounds, missed)
    return {**figures, "missed": missed}


def _roughly_missed(figures: dict[str, Any]) -> list[str]:
    """Which ratios are out of `ROUGHLY`."""
    found = {
        "calls": figures["calls_to_v1"],
        "pages": figures["pages_to_nothing"],
        "catalog": figures["large_to_small"],
    }
    missed = [
        f"{kind}, {name}: {ratio:.2f}"
        for kind, (least, most) in ROUGHLY.items()
        for name, ratio in found[kind].items()
        if not least <= ratio <= most
    ]
    measure.verdict(
        ", ".join(f"{kind} {least:g} to {most:g}" for kind, (least, most) in ROUGHLY.items()), missed
    )
    return missed


@contextlib.contextmanager
def _registry(
    folder: Path, upstream: int, count: int, seen: int, name: str, **settings: Any
) -> Iterator[RegistryProcess]:
    """A registry of `count` tools, of which every service account of `team` sees so many, evenly spread."""
    folder = folder / name
    folder.mkdir()
    key = folder / "audit.key"
    key.write_text("5" * 64)
    key.chmod(0o600)
    audit = {"path": str(folder / "decisions.jsonl"), "key_file": str(key)}
    egress = {"loopback": True}
    config = configuration(folder / "registry", audit=audit, egress=egress, **settings)
    everybody = PublishedSubject(
        kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts:team", namespace=None
    )
    with process(config) as registry:
        registry.publish(
            *(_tool(i, count, seen, upstream) for i in range(count)),
            bindings=(binding("all", ("seen:use",), subjects=(everybody,)),),
        )
        yield registry


def _tool(number: int, count: int, seen: int, upstream: int) -> PublishedTool:
    scope = (
        "seen:use" if number % (count // seen) == 0 and number // (count // seen) < seen else f"s{number}:use"
    )
    to = backend(upstream, "/call", assertion=False)
    return tool(f"tool-{number:05}", scopes=(scope,), input_schema=SCHEMA, returns="A number.", backend=to)


def _token(account: int = 0) -> str:
    return mint(f"system:serviceaccount:team:agent-{account}")


def _http(token: str, path: str, version: str | None, method: str, params: dict[str, Any]) -> bytes:
    body, fields = rpc(version, method, params)
    return _posted(token, path, body, fields)


def _posted(token: str, path: str, body: Any, fields: dict[str, str] | None = None) -> bytes:
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}", "content-type: application/json",
        f"content-length: {len(content)}", *(f"{k}: {v}" for k, v in (fields or {}).items()),
    ]  # fmt: skip
    return "\r\n".join((*lines, "", "")).encode() + content


def _call(token: str, path: str, version: str, tool_name: str = "tool-00000") -> bytes:
    name = f"team/{tool_name}" if path == "/mcp" else tool_name
    return _http(token, path, version, "tools/call", call_of(path, name, ARGUMENTS))


def _v1(token: str) -> bytes:
    return _posted(token, "/v1/call", {"tool": "team/tool-00000", "arguments": ARGUMENTS})


def _rounds(load: Talker, pid: int, variants: Sequence[Variant], quick: bool) -> None:
    count = 2 if quick else ROUNDS
    measure.rounds(
        load, pid, variants, count=count * SLICES, seconds=0.1 if quick else 0.3, connections=CONNECTIONS
    )
    for variant in variants:
        rates, costs = variant.rates, variant.costs
        groups = [slice(n * SLICES, (n + 1) * SLICES) for n in range(count)]
        # weighed by what was answered: the processor time of the round by its requests
        variant.costs = [
            sum(c * r for c, r in zip(costs[g], rates[g], strict=True)) / sum(rates[g]) for g in groups
        ]
        variant.rates = [statistics.fmean(rates[g]) for g in groups]


# ---- calls and lists --------------------------------------------------------------------------------------------------


def _pages(registry: RegistryProcess, token: str, version: str) -> list[bytes]:
    """The requests of one full list."""
    made: list[bytes] = []
    params: dict[str, Any] = {}
    while True:
        body, fields = rpc(version, "tools/list", params)
        made.append(_posted(token, "/mcp/direct", body, fields))
        headers = {"authorization": f"Bearer {token}", **fields}
        answer = httpx.post(registry.url + "/mcp/direct", headers=headers, json=body, trust_env=False).json()
        if "nextCursor" not in answer["result"]:
            return made
        params = {"cursor": answer["result"]["nextCursor"]}


def _calls(load: Talker, folder: Path, quick: bool) -> dict[str, Any]:
    """A call over MCP against one over `/v1/call`, and whole lists, in turns."""
    token = _token()
    with _registry(folder, load.hello["upstream"], TOOLS, TOOLS, "calls") as registry:
        base = Variant("POST /v1/call", registry.agents, _v1(token))
        kinds = [(p, v) for p in ("/mcp", "/mcp/direct") for v in (HANDSHAKE, STATELESS)]
        calls = [Variant(f"{p}, {v}", registry.agents, _call(token, p, v)) for p, v in kinds]
        pages = {v: _pages(registry, token, v) for v in (HANDSHAKE, STATELESS)}
        lists = [Variant(f"list, {v}", registry.agents, pages[v]) for v in pages]
        # requests that do nothing, as the era has them
        idle = {HANDSHAKE: ("ping", {}), STATELESS: ("server/discover", {})}
        nothing = [
            Variant(m, registry.agents, _http(token, "/mcp/direct", v, m, p)) for v, (m, p) in idle.items()
        ]
        _rounds(load, registry.child.pid, [base, *calls, *lists, *nothing], quick)
    rows, added, listed = [[base.name, f"{_median(base.costs) * 1e3:.3f}", "", f"{_rate(base):,.0f}"]], {}, {}
    to_v1 = {v.name: measure.ratios(v.costs, base.costs)[0] for v in calls}
    to_nothing = {
        v.name: measure.ratios(v.costs, least.costs)[0] for v, least in zip(lists, nothing, strict=True)
    }
    for variant in calls:
        differences = [a - b for a, b in zip(variant.costs, base.costs, strict=True)]
        added[variant.name] = _median(differences) * 1e3
        rows.append(
            [
                variant.name,
                f"{_median(variant.costs) * 1e3:.3f}",
                f"{added[variant.name]:+.3f}",
                f"{_rate(variant):,.0f}",
            ]
        )
    measure.table(
        f"A call, {CONNECTIONS} connections", ["", "CPU ms", "more than /v1/call", "per second"], rows
    )
    rows = []
    for variant, least, (version, requests) in zip(lists, nothing, pages.items(), strict=True):
        count, a_page, a_ping = len(requests), _median(variant.costs) * 1e3, _median(least.costs) * 1e3
        listed[version] = a_page * count
        figures = (a_page, a_ping, a_page * count, (a_page - a_ping) * count)
        rows.append([version, str(count), *(f"{figure:.3f}" for figure in figures)])
    measure.table(
        f"tools/list of {TOOLS:,} tools",
        [
            "",
            "pages",
            "CPU ms a page",
            "a request for nothing",
            "CPU ms a list",
            "more than for nothing",
        ],
        rows,
    )
    return {"added_ms": added, "list_ms": listed, "calls_to_v1": to_v1, "pages_to_nothing": to_nothing}


# ---- the catalog ------------------------------------------------------------------------------------------------------


def _catalogs(load: Talker, folder: Path, quick: bool) -> dict[str, Any]:
    """The same requests of a caller of ten tools, with ten in the catalog and with 2,651."""
    token, upstream = _token(), load.hello["upstream"]
    describe = {"name": "describe_tool", "arguments": {"tool_id": "team/tool-00000"}}
    requests = {
        "call_tool": _call(token, "/mcp", STATELESS),
        "direct call": _call(token, "/mcp/direct", STATELESS),
        "describe_tool": _http(token, "/mcp", STATELESS, "tools/call", describe),
        "direct list": _http(token, "/mcp/direct", STATELESS, "tools/list", {}),
    }
    with (
        _registry(folder, upstream, FEW, SEEN, "few") as few,
        _registry(folder, upstream, MANY, SEEN, "many") as many,
    ):
        measure.settle(many.child.pid)
        pairs = [
            tuple(Variant(name, r.agents, request, pid=r.child.pid) for r in (few, many))
            for name, request in requests.items()
        ]
        _rounds(load, few.child.pid, [v for pair in pairs for v in pair], quick)
    rows, shares = [], {}
    for small, large in pairs:
        middle, low, high = measure.ratios(large.costs, small.costs)
        shares[small.name] = middle
        costs = (f"{_median(v.costs) * 1e3:.3f}" for v in (small, large))
        rows.append([small.name, *costs, f"{middle:.2f}", f"{low:.2f}–{high:.2f}"])
    heads = ["", f"CPU ms, {FEW}", f"CPU ms, {MANY:,}", "ratio", "low–high"]
    measure.table(f"The catalog, {SEEN} tools visible", heads, rows)
    return {"large_to_small": shares}


# ---- memory -----------------------------------------------------------------------------------------------------------


def _memory(load: Talker, folder: Path, quick: bool) -> dict[str, Any]:
    """Resident memory after 10,000 calls and after 100,000, by 1,000 identities, with 200 streams cut in between."""
    first, last = (1_000, 5_000) if quick else (10_000, 100_000)
    tokens = [_token(i) for i in range(IDENTITIES)]
    kinds = [(p, v) for p in ("/mcp", "/mcp/direct") for v in (HANDSHAKE, STATELESS)]
    requests = [_call(token, *kinds[i % len(kinds)]) for i, token in enumerate(tokens)]
    with _registry(folder, load.hello["upstream"], TOOLS, SEEN, "memory") as registry:
        pid = registry.child.pid
        done = _asked(load, registry, requests, first)
        measure.settle(pid)
        before = measure.rss(pid)
        for start in range(0, CUT, CUT // 4):
            _cut(registry, tokens[start : start + CUT // 4])
            done += _asked(load, registry, requests, (last - first) // 4)
        measure.settle(pid)
        after = measure.rss(pid)
        metrics = httpx.get(registry.metrics_url + "/metrics", trust_env=False).text
    open_streams = [x for x in metrics.splitlines() if x.startswith("toolcrib_watch_streams")]
    grown = (after - before) / 2**20
    rows = [[f"{first:,}", f"{before / 2**20:.1f}"], [f"{done:,}, {CUT} streams cut", f"{after / 2**20:.1f}"]]
    measure.table(f"Resident memory, calls by {IDENTITIES:,} identities", ["calls", "MiB"], rows)
    print(f"  grown by {grown:.1f} MiB; {' '.join(open_streams)}")
    return {"grown_mib": grown, "calls": done}


def _asked(load: Talker, registry: RegistryProcess, requests: Sequence[bytes], count: int) -> int:
    """At least so many calls."""
    done, encoded = 0, [base64.b64encode(r).decode() for r in requests]
    while done < count:
        # requests are taken in turn from the first: each job asks as all identities
        job = {
            "host": "127.0.0.1",
            "port": registry.agents,
            "request": encoded,
            "connections": CONNECTIONS,
            "seconds": 2,
        }
        done += int(load.ask(job)["requests"])
    return done


def _cut(registry: RegistryProcess, tokens: Sequence[str]) -> None:
    """Open a change stream for each token, of both eras in turns; cut all without a word."""
    opened = []
    for number, token in enumerate(tokens):
        made = socket.create_connection(("127.0.0.1", registry.agents), timeout=30)
        wanted = {"notifications": {"toolsListChanged": True}}
        request = _http(token, "/mcp/direct", STATELESS, "subscriptions/listen", wanted)
        if number % 2:
            head = ("GET /mcp/direct HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}", "", "")
            request = "\r\n".join(head).encode()
        made.sendall(request)
        begun = b""
        while not any(word in begun for word in (b"ready", b"acknowledged", b"problem")):
            begun += made.recv(65536)
        assert begun.startswith(b"HTTP/1.1 200"), begun
        opened.append(made)
    for made in opened:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.close()


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _rate(variant: Variant) -> float:
    return statistics.median(variant.rates)
