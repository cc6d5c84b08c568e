"""Tasks in the background that break: the one that cuts calls ends the registry, the one that prepares searches does not."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from realparts.processes import wait_until
from registry_harness import binding, running_registry, tool
from registry_process import configuration
from toolcrib_registry import main
from toolcrib_registry.calls.in_flight import InFlight
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.settings import RegistrySettings


def breaks(*_: Any) -> Any:
    raise RuntimeError("broken")


async def broken(*_: Any) -> None:
    breaks()


def test_a_registry_that_cannot_cut_calls_any_more_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = RegistrySettings.model_validate(yaml.safe_load(configuration(tmp_path).read_text()))
    whole = InFlight.follow

    async def later(self: InFlight) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(whole(self), 0.3)
        breaks()

    for follow in (broken, later):
        monkeypatch.setattr(InFlight, "follow", follow)
        began = time.monotonic()
        with pytest.raises(main.Broken):
            asyncio.run(main.run(settings.model_copy(update={"drain_seconds": 60.0})))
        assert time.monotonic() - began < 30, "without a drain"
        assert "revoked calls can no longer be cut" in caplog.text


def test_it_is_not_ready_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        assert r.http.get(f"{r.admin_url}/readyz").status_code == 200
        monkeypatch.setattr(InFlight, "_look_at_all", broken)
        r.publish([tool("echo")])
        wait_until(lambda: r.http.get(f"{r.admin_url}/readyz").status_code != 200)


def test_a_snapshot_whose_words_cannot_be_taken_in_ahead_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_registry([tool("calculator")], [binding("bot", ("calculator:use", "echo:use"))]) as r:
        whole, taken = Searcher.complete, 0

        async def complete(self: Searcher) -> bool:
            nonlocal taken
            taken += 1
            if taken == 1:
                breaks()
            return await whole(self)

        monkeypatch.setattr(Searcher, "complete", complete)
        for name in ("echo", "other"):
            before = taken
            r.publish([tool(name)])
            wait_until(lambda before=before: taken != before)  # type: ignore[misc]
        found = r.http.post(
            f"{r.url}/v1/search", headers=r.auth("team", "bot"), json={"query": "echo"}
        ).json()
        assert found["tools"][0]["name"] == "echo"
        assert r.http.get(f"{r.admin_url}/readyz").status_code == 200
