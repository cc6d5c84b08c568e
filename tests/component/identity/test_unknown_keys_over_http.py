"""Ten thousand tokens of keys that nobody knows, over HTTP, at a registry whose issuer does not answer any more."""

import asyncio
import json
import math
import os
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from evil_upstream import response, silent, upstream
from jwks_server import Signer
from registry_harness import binding, tool
from registry_process import configuration, process
from token_kinds import part
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.usefixtures("fresh_programs")]
ISSUER = "https://idp.example"
ATTACKS, AT_ONCE = 10_000, 50


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_good_tokens_go_on_working_and_the_issuer_is_asked_once_in_thirty_seconds(
    tmp_path: Path,
) -> None:
    signer, stranger = Signer("k1"), Signer("unknown")
    away = False

    async def keys(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if away:
            await silent(reader, writer)
        writer.write(response(json.dumps({"keys": [signer.jwk]}).encode()))
        await writer.drain()

    subject = PublishedSubject(kind=SubjectKind.USER, issuer=ISSUER, name="me")
    grant = binding("me", ("calculator:use",), subjects=(subject,))
    async with (
        upstream(raw=keys) as up,
        httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as http,
    ):
        file = configuration(tmp_path)
        settings = json.loads(file.read_text())
        settings["allow_dev_issuer"] = True  # its keys come over plain HTTP, on loopback
        settings["issuers"].append({"issuer": ISSUER, "audience": ["toolcrib"], "jwks_uri": up.url})
        file.write_text(json.dumps(settings))
        with ExitStack() as stack:
            running = await asyncio.to_thread(stack.enter_context, process(file))
            await asyncio.to_thread(running.publish, tool("calculator"), bindings=(grant,))
            away = True
            _, payload, signature = stranger.token(ISSUER).split(".")
            waiting = iter(range(ATTACKS))
            attacking = True
            took: list[float] = []

            async def attack() -> None:
                for number in waiting:
                    head = part({"alg": "ES256", "kid": f"unknown-{number}"})
                    token = f"{head}.{payload}.{signature}"
                    refused = await http.get(
                        f"{running.url}/v1/tools", headers={"Authorization": f"Bearer {token}"}
                    )
                    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_token")

            async def work() -> None:
                while attacking:
                    token = signer.token(
                        ISSUER, exp=time.time() + 600, scope="calculator:use", jti=str(len(took))
                    )
                    start = time.perf_counter()
                    found = await http.get(
                        f"{running.url}/v1/tools", headers={"Authorization": f"Bearer {token}"}
                    )
                    took.append(time.perf_counter() - start)
                    assert [one["name"] for one in found.json()["tools"]] == ["calculator"]
                    await asyncio.sleep(0.05)

            memory, begun = resident(running.child.pid), time.monotonic()
            good = asyncio.create_task(work())
            await asyncio.gather(*(attack() for _ in range(AT_ONCE)))
            attacking = False
            await good
            elapsed, grown = time.monotonic() - begun, resident(running.child.pid) - memory
            took.sort()
            print(f"{ATTACKS} in {elapsed:.1f} s; good tokens: {len(took)}, p99 {took[int(len(took) * 0.99)] * 1000:.0f} ms; "
                  f"fetches {up.accepts - 1}; memory +{grown / 1e6:.1f} MB")  # fmt: skip
            assert up.accepts - 1 <= math.ceil(elapsed / 30), "at most one fetch in 30 s"
            assert len(took) > 20
            assert took[len(took) // 2] < 1.0
            assert grown < 60e6
