"""C. Callers: foreign pages and hosts, addresses that nobody verified, keys over plain HTTP."""

from __future__ import annotations

import json
import random
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from attack.stage import Stage, Target, hold
from registry_harness import OPERATOR, binding, mint, tool
from registry_process import COMMAND, configuration
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject

STARTS = 3
USERS = "https://users.test"


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Requests with generated headers and tokens; a few processes that must not start."""
    target = stage.target()
    target.publish([tool("t", scopes=("s",))], [binding("bot", ["s"])])
    for number in range(count):
        (_origin if number % 2 else _email)(stage, draw, target)
    with stage.folder("plain-keys") as folder:
        issuers = [_plain_keys(draw) for _ in range(STARTS)]
        with ThreadPoolExecutor(STARTS) as pool:
            list(pool.map(_refused, issuers, [folder / str(number) for number in range(STARTS)]))
    return count + STARTS


def _raw(port: int, head: str) -> str:
    """The status of a request written by hand."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head.encode("latin-1"))
        answer = b""
        while b"\r\n" not in answer:
            piece = connection.recv(65536)
            if not piece:
                break
            answer += piece
    return answer.split(b"\r\n")[0].decode()


def _origin(stage: Stage, draw: random.Random, target: Target) -> None:
    port = target.running.agents
    own = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"]
    host = draw.choice(own)
    ours = f"http://{host}"
    foreign = draw.choice(
        ["http://evil.example", "null", "", f"{ours}.evil.example", f"http://evil.example/{host}", f"{ours}@evil.example",
         f"http://127.0.0.1:{port + 1}", "file://", f"{ours}, http://evil.example", "chrome-extension://abc", f"{ours}%00"]
    )  # fmt: skip
    kind = draw.choice(["own", "foreign", "two", "two foreign", "host", "two hosts"])
    lines = [f"Host: {host}"]
    name = draw.choice(["Origin", "origin", "ORIGIN"])
    if kind == "own":
        lines += [f"{name}: {ours}"]
    elif kind == "foreign":
        lines += [f"{name}: {foreign}"]
    elif kind == "two":
        lines += draw.sample([f"{name}: {ours}", f"Origin: {draw.choice([ours, foreign])}"], 2)
    elif kind == "two foreign":
        lines += [f"{name}: {foreign}", f"Origin: {foreign}"]
    elif kind == "host":
        lines = [
            "Host: "
            + draw.choice(
                ["evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "*", "localhost.evil"]
            )
        ]
    else:
        lines += [f"Host: {draw.choice([*own, 'evil.example'])}"]
    path = draw.choice(["/", "/v1/tools", "/health", "/tools/t"])
    head = "\r\n".join(
        [
            f"GET {path} HTTP/1.1",
            *lines,
            f"Authorization: {target.auth()['Authorization']}",
            "Connection: close",
            "",
            "",
        ]
    )
    status = _raw(port, head).split(" ")[1:2]
    expected = ["200"] if kind == "own" else ["403"] if kind in ("foreign", "two", "two foreign") else ["421"]
    hold(
        "foreign pages and hosts are refused, our own are not",
        status == expected,
        lines=lines,
        path=path,
        status=status,
    )


def _email(stage: Stage, draw: random.Random, _: Target) -> None:
    target = _registry_of_addresses(stage)
    user = PublishedSubject(kind=SubjectKind.USER, issuer=USERS, name="boss@corp.example")
    if not target.seq:
        target.publish([tool("t", scopes=("s",))], [binding("x", ["s"], subjects=(user,))])
    absent = object()
    verified: Any = draw.choice(
        [True, True, False, absent, None, "true", "True", 1, "yes", [True], {"v": True}, 1.0]
    )
    claims: dict[str, Any] = {"iss": USERS, "email": "boss@corp.example"}
    if verified is not absent:
        claims["email_verified"] = verified
    token = mint(draw.choice(["attacker", "boss@corp.example"]), **claims)
    headers = {"Authorization": f"Bearer {token}"}
    answer = target.http.get(target.url + "/", headers=headers)
    seen = answer.json()["tools"] if answer.status_code == 200 else []
    hold(
        "an address is a user where the issuer has verified it, and nowhere else",
        bool(seen) == (verified is True),
        claims={k: str(v) for k, v in claims.items()},
        answer=answer.text,
    )


def _registry_of_addresses(stage: Stage) -> Target:
    """A registry whose users are the issuer's addresses."""
    with stage.folder("keys") as folder:
        written = json.loads(configuration(folder).read_text())["issuers"][0]
    users = {**written, "issuer": USERS, "cluster": False, "claims": {"user": "email"}}
    return stage.target("addresses", issuers=[written, users])


def _plain_keys(draw: random.Random) -> dict[str, Any]:
    url = draw.choice(
        ["http://127.0.0.1:9/jwks", "HTTP://keys.example/jwks", "http://[::1]/k", "http://keys.example:443/k"]
    )
    place: dict[str, Any] = draw.choice([{"jwks_uri": url}, {"jwks_uri": url, "scopes": "intersection"}])
    return {"issuer": "https://idp.example", "audience": ["toolcrib"], "scopes": "bindings", **place}


def _refused(issuer: dict[str, Any], folder: Any) -> None:
    config = configuration(folder, issuers=[issuer], admin_subjects=[OPERATOR])
    done = subprocess.run([*COMMAND, "--config", str(config)], capture_output=True, text=True, timeout=60)
    hold(
        "a registry whose keys come over plain HTTP does not start",
        done.returncode == 2 and "plain HTTP" in done.stderr,
        issuer=issuer,
        status=done.returncode,
        said=done.stderr[-300:],
    )
