"""Watching the view: what is sent, when, and when the stream ends."""

import asyncio
import contextlib
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from jwks_server import Signer
from realparts.processes import wait_until
from registry_harness import ISSUER, ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib.identity import Identity, Issuer, ScopesPolicy
from toolcrib.wire.api import ToolDefinition
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.watch import stream
from toolcrib_registry.watch.stream import shown

Event = tuple[str, str, dict[str, Any]]


class Watch:
    """A watch stream read by a thread; `next()` gives (event, id, data), `ended()` waits for its end."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._events: Queue[Event | None] = Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            for line in self._response.iter_lines():
                if not line and fields:
                    self._events.put((fields["event"], fields["id"], json.loads(fields["data"])))
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
        except (httpx.StreamError, httpx.TransportError):
            pass
        self._events.put(None)

    def join(self) -> None:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    def next(self, seconds: float = 30.0) -> Event:
        found = self._events.get(timeout=seconds)
        assert found is not None, "the stream has ended"
        return found

    def ended(self, seconds: float = 30.0) -> bool:
        return self._events.get(timeout=seconds) is None

    def quiet(self, seconds: float = 0.3) -> bool:
        try:
            self._events.get(timeout=seconds)
        except Empty:
            return True
        return False


@contextlib.contextmanager
def watching(r: RunningRegistry, headers: dict[str, str]) -> Iterator[Watch]:
    with (
        httpx.Client(timeout=httpx.Timeout(30, read=None), verify=False) as client,
        client.stream("GET", r.url + "/v1/watch", headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        connection: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
        watch = Watch(response)
        try:
            yield watch
        finally:
            # closing alone would not end the connection while the thread reads from it
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            watch.join()


def test_the_whole_view_comes_first_and_then_what_changes() -> None:
    grant = binding("bot", ["calculator:use", "echo:use"])
    with running_registry([tool("calculator")], [grant]) as r, watching(r, r.auth("team", "bot")) as watch:
        kind, first_id, data = watch.next()
        assert kind == "snapshot"
        assert [t["tool_id"] for t in data["tools"]] == ["team/calculator"]
        assert data["revision"] == first_id

        r.publish([tool("echo")])
        kind, second_id, data = watch.next()
        assert (kind, data["tool"]["name"]) == ("added", "echo")
        assert second_id != first_id

        r.publish([tool("echo", description="Says it back.")])
        kind, _, data = watch.next()
        assert (kind, data["tool"]["description"]) == ("changed", "Says it back.")

        r.publish(remove_tools=["team/echo"])
        kind, last_id, data = watch.next()
        assert (kind, data["tool_id"], data["name"]) == ("removed", "team/echo", "echo")
        assert last_id == first_id  # ids name the content of the view


def test_what_is_not_visible_makes_no_event() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        with watching(r, r.auth("team", "bot")) as watch:
            watch.next()
            r.publish([tool("hidden")], [binding("other", ["hidden:use"])])
            assert watch.quiet()


def test_a_revoked_grant_and_a_deny_remove_at_once() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        with watching(r, r.auth("team", "bot")) as watch:
            watch.next()
            r.publish(
                bindings=[binding("deny", [], name="deny", subjects=binding("bot").subjects, deny=("*",))]
            )
            assert watch.next()[0] == "removed"
            r.publish(remove_bindings=["uid-team-deny"])
            assert watch.next()[0] == "added"


def test_a_grant_s_expiry_and_start_are_seen_by_the_clock_alone() -> None:
    clock = ManualClock(1_000_000.0)
    grants = [
        binding("bot", ["calculator:use"], name="ends", expires_at=1_000_060.0),
        binding("bot", ["echo:use"], name="starts", not_before=1_000_120.0),
    ]
    with running_registry([tool("calculator"), tool("echo")], grants, clock=clock) as r:
        with watching(r, r.auth("team", "bot")) as watch:
            assert [t["name"] for t in watch.next()[2]["tools"]] == ["calculator"]
            clock.advance(59)
            assert watch.quiet()
            clock.advance(1)
            assert (watch.next()[0], r.registry.deps.state.snapshot.revision.seq) == ("removed", 1)
            clock.advance(60)
            kind, _, data = watch.next()
            assert (kind, data["tool"]["name"]) == ("added", "echo")


def test_the_stream_ends_when_the_token_does() -> None:
    clock = ManualClock(1_000_000.0)
    with running_registry([tool("calculator")], [binding("bot")], clock=clock) as r:
        with watching(r, r.auth("team", "bot", ttl=600)) as watch:
            watch.next()
            clock.advance(600)
            assert watch.next() == ("end", "", {"reason": "token_expired"})
            assert watch.ended()


def test_a_stream_whose_token_ends_while_it_waits_for_its_turn_ends_and_removes_nothing() -> None:
    clock = ManualClock(1_000_000.0)
    with running_registry([tool("calculator")], [binding("bot")], clock=clock) as r:
        turn = r.registry.deps.state.turn

        async def let_go() -> None:
            turn.release()

        with watching(r, r.auth("team", "bot", ttl=600)) as watch:
            watch.next()
            r.on_loop(turn.acquire)
            try:
                r.publish([tool("secret")])
                wait_until(lambda: bool(turn._waiters))  # type: ignore[attr-defined]
                clock.advance(600)
            finally:
                r.on_loop(let_go)
            assert watch.next() == ("end", "", {"reason": "token_expired"})


@pytest.mark.parametrize("instead", [(), ("new",)], ids=["nothing instead", "a new key"])
def test_the_stream_ends_when_the_key_that_signed_its_token_is_withdrawn(
    instead: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib_registry.identity.key_store.FILE_SECONDS", 0.02)
    file, issuer, kept, withdrawn = (
        tmp_path / "jwks.json",
        "https://idp.example",
        Signer("kept"),
        Signer("old"),
    )

    def serve(*signers: Signer) -> None:
        (tmp_path / "new").write_text(json.dumps({"keys": [s.jwk for s in signers]}))
        (tmp_path / "new").rename(file)

    serve(kept, withdrawn)
    own = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True)
    other = Issuer(issuer=issuer, audience=("toolcrib",), scopes=ScopesPolicy.TOKEN, jwks_file=str(file))
    with running_registry([tool("calculator")], issuers=(own, other)) as r, contextlib.ExitStack() as stack:
        keys = r.registry.keys
        assert isinstance(keys, KeyStore)
        r.on_loop(keys.start)
        stack.callback(r.on_loop, keys.close)
        headers = [
            {"Authorization": f"Bearer {s.token(issuer, scope='calculator:use secret:use')}"}
            for s in (kept, withdrawn)
        ]
        first, second = (stack.enter_context(watching(r, each)) for each in headers)
        assert first.next()[0] == second.next()[0] == "snapshot"
        serve(kept, *map(Signer, instead))
        assert second.next() == ("end", "", {"reason": "invalid_token"})
        assert second.ended()
        r.publish([tool("secret")])
        assert first.next()[0] == "added", "the others go on"


def test_a_stream_whose_key_is_withdrawn_while_it_waits_for_its_turn_shows_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib_registry.identity.key_store.FILE_SECONDS", 0.02)
    file, issuer, key = tmp_path / "jwks.json", "https://idp.example", Signer("old")
    file.write_text(json.dumps({"keys": [key.jwk]}))
    own = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True)
    other = Issuer(issuer=issuer, audience=("toolcrib",), scopes=ScopesPolicy.TOKEN, jwks_file=str(file))
    with running_registry([tool("calculator")], issuers=(own, other)) as r, contextlib.ExitStack() as stack:
        keys, turn = r.registry.keys, r.registry.deps.state.turn
        assert isinstance(keys, KeyStore)
        r.on_loop(keys.start)
        stack.callback(r.on_loop, keys.close)
        headers = {"Authorization": f"Bearer {key.token(issuer, scope='calculator:use secret:use')}"}
        watch = stack.enter_context(watching(r, headers))
        assert watch.next()[0] == "snapshot"

        async def let_go() -> None:
            turn.release()

        r.on_loop(turn.acquire)
        try:
            r.publish([tool("secret")])
            wait_until(lambda: bool(turn._waiters))  # type: ignore[attr-defined]
            known = keys.version
            (tmp_path / "new").write_text(json.dumps({"keys": [Signer("new").jwk]}))
            (tmp_path / "new").rename(file)
            wait_until(lambda: keys.version != known)
        finally:
            r.on_loop(let_go)
        assert watch.next() == ("end", "", {"reason": "invalid_token"})


def _without(name: str) -> Callable[[RunningRegistry], None]:
    def revoke(r: RunningRegistry) -> None:
        r.publish(remove_bindings=[f"uid-team-{name}"])

    return revoke


WHOLE = 5_000_000


def _rest_of_a_large_snapshot(clock: ManualClock, meanwhile: Callable[[RunningRegistry], None]) -> int:
    """Bytes that a reader gets of five million if `meanwhile` happens while it pauses after the first few."""
    big = [tool(f"t{i}", scopes=("all:use",), description="x" * 50_000) for i in range(100)]
    grants = [binding("bot", ("all:use",)), binding("other", ("all:use",))]
    with running_registry(big, grants, clock=clock) as r, socket.socket() as connection:
        where = urlsplit(r.url)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((where.hostname, where.port))
        token = r.token("team", "bot", ttl=600)
        connection.sendall(
            f"GET /v1/watch HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        connection.settimeout(30)
        first = b""
        while b"event: snapshot" not in first:
            first += (piece := connection.recv(4096))
            assert piece, first
        got = len(first)
        meanwhile(r)
        # whatever is cut ends with its connection
        while got <= WHOLE and (piece := connection.recv(1 << 16)):
            got += len(piece)
        return got


def test_a_slow_reader_gets_no_more_of_a_large_event_once_its_token_or_a_grant_in_it_has_ended() -> None:
    clock = ManualClock(1_000_000.0)
    revoked = _rest_of_a_large_snapshot(clock, _without("bot"))
    expired = _rest_of_a_large_snapshot(clock, lambda r: clock.advance(600))
    others = _rest_of_a_large_snapshot(clock, _without("other"))
    assert others > WHOLE
    assert max(revoked, expired) < 2_500_000, "what the kernel has taken is out of our hands"


def test_a_stream_of_large_tools_holds_up_no_other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made, begun, go = stream._made_of, threading.Event(), threading.Event()

    def slow(caller_view: Any, before: Any) -> Any:
        if len(caller_view.view.tools) > 1:
            begun.set()
            assert go.wait(30), "other streams and publishes go on meanwhile"
        return made(caller_view, before)

    monkeypatch.setattr(stream, "_made_of", slow)
    big = [tool(f"t{i}", scopes=("all:use",), description="x" * 50_000) for i in range(20)]
    grants = [binding("bot", ("all:use",)), binding("other")]
    with (
        running_registry([*big, tool("calculator")], grants) as r,
        watching(r, r.auth("team", "bot")) as large,
    ):
        assert begun.wait(30)
        with watching(r, r.auth("team", "other")) as small:
            assert small.next()[0] == "snapshot"
            r.publish([tool("calculator", description="Another.")], remove_tools=["team/t0"])
            assert small.next()[0] == "changed"
        go.set()
        kind, _, data = large.next()
        assert (kind, len(data["tools"])) == ("snapshot", len(big) - 1), "of the moment in which it is sent"


def test_streams_end_when_the_registry_stops() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        with watching(r, r.auth("team", "bot")) as watch:
            watch.next()
            r.on_loop(_close(r))
            assert watch.next()[0] == "end"


def test_there_is_a_bound_on_streams_and_closed_ones_do_not_count() -> None:
    with running_registry([tool("calculator")], [binding("bot")], limits={"watch_streams": 1}) as r:
        headers = r.auth("team", "bot")
        with watching(r, headers) as watch:
            watch.next()
            second = r.http.get(r.url + "/v1/watch", headers=headers)
        assert (second.status_code, second.json()["code"]) == (503, "too_many_streams")
        _until_closed(r)
        with watching(r, headers) as watch:
            watch.next()


def test_one_subject_cannot_take_the_streams_of_others() -> None:
    limits = {"watch_streams": 4, "watch_streams_per_subject": 3}
    with running_registry([tool("calculator")], [binding("bot")], limits=limits) as r:

        async def asked(client: httpx.AsyncClient) -> httpx.Response:
            request = client.build_request("GET", r.url + "/v1/watch", headers=r.auth("elsewhere", "nobody"))
            return await client.send(request, stream=True)

        async def at_once() -> list[httpx.Response]:
            async with httpx.AsyncClient(verify=False, timeout=30) as client:
                answers = await asyncio.gather(*(asked(client) for _ in range(10)))
                own = next(a for a in answers if a.status_code != 200)
                await own.aread()
                with watching_bot() as watch:
                    assert watch.next()[0] == "snapshot"
                    other = r.http.get(r.url + "/v1/watch", headers=r.auth("team", "other"))
                for each in answers:
                    await each.aclose()
                return [*answers, own, other]

        def watching_bot() -> contextlib.AbstractContextManager[Watch]:
            return watching(r, r.auth("team", "bot"))

        *answers, own, other = asyncio.run(at_once())
        assert sorted(a.status_code for a in answers) == [200] * 3 + [503] * 7
        assert own.json()["code"] == "too_many_streams"
        assert own.json() == other.json(), "which of the two bounds it was says how many others watch"
        assert own.headers["retry-after"] == "30"


def _close(r: RunningRegistry) -> Any:
    async def close() -> None:
        r.registry.deps.state.close()

    return close


def _until_closed(r: RunningRegistry) -> None:
    wait_until(lambda: r.registry.deps.metrics.open_streams == 0)


def test_streams_of_one_tool_hold_one_definition_of_it() -> None:
    grants = [binding(name, ("calculator:use",)) for name in ("ann", "bob")]
    with running_registry([tool("calculator")], grants) as r:

        async def definitions() -> list[ToolDefinition]:
            people = [
                Identity(ISSUER, f"system:serviceaccount:team:{name}", time.time() + 60, cluster=True)
                for name in ("ann", "bob")
            ]
            return [d for who in people for d in shown(await r.registry.deps.state.caller_view(who)).values()]

        first, second = r.on_loop(definitions)
        assert first is second


def test_a_change_that_wakes_many_streams_does_not_hold_up_others() -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20)}}
    tools = [tool(f"t{i}", scopes=("all:use",), input_schema=schema) for i in range(400)]
    grants = [binding(f"bot{i}", ("all:use",)) for i in range(40)]
    with running_registry(tools, grants) as r, contextlib.ExitStack() as streams:
        watches = [streams.enter_context(watching(r, r.auth("team", f"bot{i}"))) for i in range(40)]
        for watch in watches:
            assert watch.next()[0] == "snapshot"
        shares = []
        for name in ("one", "two", "three"):
            r.publish([tool(name, scopes=("all:use",))])
            asked = time.perf_counter()
            assert r.http.get(f"{r.url}/health").status_code == 200
            alone = time.perf_counter() - asked
            assert all(watch.next()[0] == "added" for watch in watches)
            shares.append(alone / (time.perf_counter() - asked))
        assert statistics.median(shares) < 0.5, shares
