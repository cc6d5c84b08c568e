"""The same request again and again, each time after something changed: the answer is always that of the moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hash_embedder import HashEmbedder
from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool

TOOLS = [
    tool("forecast", description="Weather of a city.", scopes=("s",)),
    tool("almanac", description="Weather of a city, a hundred years ago.", scopes=("s",)),
]
SCOPES = ["s"]


@contextmanager
def registry(clock: ManualClock) -> Iterator[RunningRegistry]:
    """Both tools in force and in the index, and a bot that may see them."""
    bindings = [binding("bot", SCOPES)]
    with running_registry(TOOLS, bindings, clock=clock, embedder=HashEmbedder(), patient=True) as r:
        r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": [t.tool_id for t in TOOLS]})
        yield r


def found(r: RunningRegistry, headers: dict[str, str]) -> list[str]:
    """The names that are found, asked three times."""
    answers = [
        r.http.post(r.url + "/v1/search", headers=headers, json={"query": "weather city"}).json()
        for _ in range(3)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert not answers[0]["degraded"]
    return sorted(t["name"] for t in answers[0]["tools"])


def test_a_repeated_search_follows_every_change() -> None:
    clock = ManualClock()
    with registry(clock) as r:
        bot, other = r.auth("team", "bot"), r.auth("team", "other")
        assert found(r, bot) == ["almanac", "forecast"]
        assert found(r, other) == []

        r.publish(tools=[tool("almanac", description="Tides and moons.", scopes=("s",))])
        assert found(r, bot) == ["forecast"]

        r.publish(remove_bindings=["uid-team-bot"])
        assert found(r, bot) == []

        r.publish(
            bindings=[binding("bot", SCOPES, not_before=clock.now() + 50, expires_at=clock.now() + 100)]
        )
        assert found(r, bot) == []
        clock.advance(60)
        assert found(r, bot) == ["forecast"]
        clock.advance(60)
        assert found(r, bot) == []
        clock.jump(-60)
        assert found(r, bot) == ["forecast"]


def test_a_repeated_search_follows_the_index() -> None:
    with registry(ManualClock()) as r:
        bot = r.auth("team", "bot")

        def why() -> list[bool]:
            body = {"query": "weather city"}
            tools = [
                r.http.post(r.url + "/v1/search", headers=bot, json=body).json()["tools"] for _ in range(2)
            ][1]
            return sorted("meaning" in t["why"] for t in tools)

        indexed = why()
        r.publish(tools=[tool("almanac", description="The weather of a city on any day.", scopes=("s",))])
        partly = why()
        r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": ["team/almanac"]})

        assert indexed == why() == [True, True]
        assert partly == [False, True]
