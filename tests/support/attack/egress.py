"""C. Egress: no name, Service, redirect or second lookup leads the registry where it must not go."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from attack.stage import OK, Backend, Stage, Target, code_of, hold, remembering, service, text
from registry_harness import binding, tool
from stub_server import Answer
from toolcrib.resources.backends import Method
from toolcrib.wire.backends import PublishedBackend

NAMES = (sys.executable, str(Path(__file__).with_name("hostile_names.py")))
FORGOTTEN = 30.0
"""Seconds within which an answer is asked for again; its TTL is 1 s."""
LOST = 6
CLUSTER = ["10.96.0.0/12", "10.244.0.0/16"]
_V4 = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "10.96.0.0/12", "10.244.0.0/16",
)  # fmt: skip
_V4_ALONE = ("127.0.0.1", "169.254.169.254", "0.0.0.0", "255.255.255.255", "100.100.100.200", "192.0.0.192")
_V6_ALONE = (
    "::1",
    "::",
    "fe80::1",
    "fd00:ec2::254",
    "fc00::1",
    "ff02::1",
    "fec0::1",
    "100::1",
    "2001:db8::1",
    "5f00::1",
)


def private(draw: random.Random) -> str:
    """An address that no url: backend may be dialled at, in any of its forms."""
    if draw.random() < 0.2:
        return draw.choice(_V6_ALONE)
    if draw.random() < 0.3:
        plain = IPv4Address(draw.choice(_V4_ALONE))
    else:
        base, _, bits = draw.choice(_V4).partition("/")
        plain = IPv4Address(int(IPv4Address(base)) + draw.randrange(1 << (32 - int(bits))))
    number = int(plain)
    forms = (
        number | 0xFFFF << 32,  # ::ffff:a.b.c.d
        number,  # ::a.b.c.d
        int(IPv6Address("64:ff9b::")) | number,
        int(IPv6Address("2002::")) | number << 80,  # 6to4
        int(IPv6Address("2001::")) | (number ^ 0xFFFFFFFF),  # Teredo
        int(IPv6Address("64:ff9b:1::")) | number,
    )
    return str(plain) if draw.random() < 0.5 else str(IPv6Address(draw.choice(forms)))


def _hex(*addresses: str) -> str:
    return ".".join(ip_address(a).packed.hex() for a in addresses)


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Generated names, addresses, Services and redirects, with a server on loopback that must not be reached."""
    closed = stage.target(
        "closed", within=NAMES, egress={"allow": ["*.hostile.test", "*"], "cluster": CLUSTER}
    )
    opened = stage.target("opened", within=NAMES, egress={"allow": ["*.hostile.test"], "loopback": True})
    with remembering() as canary:
        for number in range(count):
            kind = draw.choice([_name, _literal, _foreign, _redirect])
            kind(stage, draw, closed, canary, number)
            hold("nothing reaches the server on loopback", canary.connections == 0, number=number)
    return count + _rebindings(stage, draw, opened, max(1, count // 5)) + _lost(stage, draw, opened)


def _called(target: Target, backend: PublishedBackend, **named: Any) -> Any:
    one = tool("t", scopes=("s",), backend=backend, annotations={"readOnlyHint": True})
    target.publish([one], [binding("bot", ["s"])])
    return target.call("t", {}, **named)


def _name(stage: Stage, draw: random.Random, closed: Target, canary: Backend, number: int) -> None:
    addresses = [private(draw) for _ in range(draw.randint(1, 3))]
    url = f"http://n{number}.{_hex(*addresses)}.hostile.test:{canary.port}/x"
    answer = _called(closed, PublishedBackend(url=url, timeout=5))
    hold(
        "a name that answers addresses that are not public is refused",
        code_of(answer) == "egress_refused",
        url=url,
        addresses=addresses,
        answer=answer.text,
    )


def _literal(stage: Stage, draw: random.Random, closed: Target, canary: Backend, number: int) -> None:
    address = private(draw)
    host = (
        f"[{address}]"
        if ":" in address
        else draw.choice(
            [address, str(int(IPv4Address(address))), hex(int(IPv4Address(address))), address + "."]
        )
    )
    user = draw.choice(["", "", "public.example@"])
    url = f"http://{user}{host}:{canary.port}/x"
    answer = _called(closed, PublishedBackend(url=url, timeout=5))
    hold(
        "an address that is not public is refused",
        code_of(answer) == "egress_refused",
        url=url,
        answer=answer.text,
    )


def _foreign(stage: Stage, draw: random.Random, closed: Target, canary: Backend, number: int) -> None:
    outside = draw.choice(
        [
            PublishedBackend(service_namespace="evil", service_name="svc", service_port=80),
            PublishedBackend(
                service_namespace="north", service_name="db", service_port=canary.port, cluster_ip="10.96.0.9"
            ),
            PublishedBackend(
                service_namespace="team", service_name="db", service_port=canary.port, cluster_ip=None
            ),
            PublishedBackend(
                service_namespace="team",
                service_name=text(draw, "abc", 1, 5),
                service_port=canary.port,
                cluster_ip=draw.choice(
                    [
                        "127.0.0.1",
                        "::1",
                        "169.254.169.254",
                        "192.168.1.1",
                        "172.20.0.1",
                        "8.8.8.8",
                        "10.0.0.1",
                        "fd00::1",
                    ]
                ),
                timeout=5,
            ),
        ]
    )
    answer = _called(closed, outside)
    hold(
        "only a Service of the tool's own namespace, at an address of the cluster, is called",
        code_of(answer) in ("egress_refused", "service_pending"),
        backend=outside.model_dump(exclude_defaults=True),
        answer=answer.text,
    )


def _redirect(stage: Stage, draw: random.Random, closed: Target, canary: Backend, number: int) -> None:
    status = draw.choice([300, 301, 302, 303, 305, 307, 308])
    there = draw.choice(
        [
            f"http://127.0.0.1:{canary.port}/",
            f"//127.0.0.1:{canary.port}/",
            f"http://[::1]:{canary.port}/",
            "/again",
        ]
    )
    header = draw.choice(["Location", "Refresh", "Content-Location", "URI"])
    stage.backend.answer = lambda asked: Answer(b"{}", status, (("Location", there), (header, there)))
    seen = len(stage.backend.asked)
    answer = _called(closed, service("team", "/", method=draw.choice([Method.GET, Method.POST])))
    stage.backend.answer = lambda asked: OK
    hold(
        "a redirect is not followed",
        code_of(answer) == "upstream_redirect" and len(stage.backend.asked) == seen + 1,
        status=status,
        location=there,
        answer=answer.text,
    )


def _rebindings(stage: Stage, draw: random.Random, opened: Target, count: int) -> int:
    """Names that answer loopback, which is open there, and something else once that answer is forgotten."""
    tools, urls = [], {}
    for number in range(count):
        later = private(draw)
        while _is_loopback(later):
            later = private(draw)
        urls[f"r{number}"] = (
            f"http://r{number}.{_hex('127.0.0.1')}.then.{_hex(later)}.hostile.test:{stage.backend.port}/"
        )
        backend = PublishedBackend(url=urls[f"r{number}"], timeout=5)
        tools.append(tool(f"r{number}", scopes=("s",), backend=backend))
    opened.publish(tools, [binding("bot", ["s"])])
    closing = (("Connection", "close"), ("Content-Type", "application/json"))
    stage.backend.answer = lambda asked: Answer(OK.body, headers=closing)
    for name, url in urls.items():
        first = opened.call(name, {})
        hold(
            "loopback is open there: the first answer is dialled",
            first.status_code == 200,
            url=url,
            answer=first.text,
        )
    deadline = time.monotonic() + FORGOTTEN
    for name, url in urls.items():
        while (answer := opened.call(name, {})).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.2)
        hold(
            "what a name answers later is judged again",
            code_of(answer) == "egress_refused",
            url=url,
            answer=answer.text,
        )
    stage.backend.answer = lambda asked: OK
    return count


def _is_loopback(text: str) -> bool:
    address = ip_address(text)
    embedded = (
        int(address) & 0xFFFFFFFF,
        int(address) >> 80 & 0xFFFFFFFF,
        int(address) & 0xFFFFFFFF ^ 0xFFFFFFFF,
    )
    return address.is_loopback or any(IPv4Address(part).is_loopback for part in embedded)


def _lost(stage: Stage, draw: random.Random, opened: Target) -> int:
    """Callers of names whose name server loses packets: by the product's own record none waits for long."""
    tools, kind_of = [], {}
    for number in range(LOST):
        kind = ("lost", "silent", "ok")[number % 3]
        name = f"d{number}"
        answers = {"lost": f"lost.then.{_hex('127.0.0.1')}", "silent": "lost", "ok": _hex("127.0.0.1")}[kind]
        url = f"http://{name}.{answers}.hostile.test:{stage.backend.port}/"
        kind_of[name] = kind
        tools.append(tool(name, scopes=("s",), backend=PublishedBackend(url=url, timeout=10)))
    opened.publish(tools, [binding("bot", ["s"])])
    with ThreadPoolExecutor(len(tools) * 4) as pool:
        answers_of = [(name, pool.submit(opened.call, name, {})) for name in kind_of for _ in range(4)]
    # what a busy machine adds, the calls say whose name server answers
    busy = max(asked.result().json()["elapsed"] for name, asked in answers_of if kind_of[name] == "ok")
    for name, asked in answers_of:
        answer, kind = asked.result(), kind_of[name]
        case = {"names": kind, "answer": answer.text, "busy": busy}
        if kind == "silent":
            hold(
                "a name server that is silent ends the lookup",
                code_of(answer) == "upstream_unreachable",
                **case,
            )
            continue
        hold("a lost packet fails no call", answer.status_code == 200, **case)
        hold("a lost packet costs a call at most 1.2 s", answer.json()["elapsed"] <= 1.2 + busy, **case)
    return len(answers_of)
