"""What repeats becomes a count: bounded places, nothing uncounted, and nobody can make the log forget who it was."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from toolcrib_registry.audit.folding import Folding

pytestmark = pytest.mark.guarantee


class Floods:
    """Refusals put into a table of the size that the registry has."""

    def __init__(self, repeats: Folding) -> None:
        self.repeats, self.now = repeats, 0.0
        self.written: list[dict[str, Any]] = []
        self.sums: list[dict[str, Any]] = []

    def refuse(self, who: str, name: str | None, action: str = "call", reason: str = "unknown_tool") -> bool:
        record = {
            "ts": 1_800_000_000.0 + self.now, "replica": "r", "action": action, "issuer": "i", "subject": who,
            "tool": name, "allowed": False, "reason": reason,
        }  # fmt: skip
        alone = self.repeats.admit((action, name, reason), ("i", who), record, self.now)
        if alone:
            self.written.append(record)
        return alone

    def due(self, everything: bool = False) -> list[dict[str, Any]]:
        found = self.repeats.due(self.now, everything=everything)
        self.sums += found
        return found

    @property
    def counted(self) -> Counter[tuple[str | None, str]]:
        """Requests by subject and action."""
        total = Counter((r["subject"], r["action"]) for r in self.written)
        for record in self.sums:
            total[record.get("subject"), record["action"]] += record["repeated"]["count"]
        return total


def test_one_caller_has_64_names_and_the_rest_is_summed_under_its_own_name() -> None:
    flood = Floods(Folding())
    for n in range(500):
        flood.refuse("crawler", f"tool-{n}")
    assert len(flood.written) == 64
    (rest,) = flood.due(everything=True)
    assert (rest["subject"], rest["tool"], rest["repeated"]["count"]) == ("crawler", None, 436)


def test_all_callers_together_have_1024_names_and_each_keeps_a_sum_of_its_own() -> None:
    flood = Floods(Folding())
    for caller in range(600):
        for n in range(80):
            flood.refuse(f"c{caller}", f"tool-{n}")
    assert 512 < len(flood.written) <= 1024
    flood.due(everything=True)
    assert flood.counted == {(f"c{caller}", "call"): 80 for caller in range(600)}


@pytest.mark.parametrize("callers", [16, 100])
def test_identities_that_fill_the_table_do_not_hide_who_else_is_refused(callers: int) -> None:
    flood = Floods(Folding())
    for caller in range(callers):
        for n in range(64 if callers == 16 else 200):
            flood.refuse(f"stranger-{caller}", f"name-{n}")
    names = [f"secret-{n}" for n in range(5)]
    alone = [flood.refuse("villain", name, reason="no_binding") for name in names]
    assert all(alone) is (callers == 16)
    flood.due(everything=True)
    assert flood.counted["villain", "call"] == 5
    assert None not in {who for who, _ in flood.counted}


def test_beyond_the_callers_that_fit_nobody_is_named_but_all_is_counted() -> None:
    flood = Floods(Folding(keys=4, each=2, sums=8))
    for caller in range(100):
        for _ in range(3):
            flood.refuse(f"c{caller}", "x")
    found = flood.due(everything=True)
    assert sum(flood.counted.values()) == 300
    assert len(found) <= 4 + 8 + 1
    (nobody,) = [r for r in found if "subject" not in r]
    assert (nobody["action"], nobody["reason"], nobody["tool"]) == ("call", "unknown_tool", None)


def test_places_become_free_after_a_quiet_interval() -> None:
    flood = Floods(Folding(interval=60))
    for n in range(100):
        flood.refuse("crawler", f"a-{n}")
    for _ in range(2):
        flood.now += 61
        flood.due()
    assert flood.due(everything=True) == []
    for n in range(100):
        flood.refuse("crawler", f"b-{n}")
    assert len(flood.written) == 128


def test_whatever_comes_every_refusal_is_written_or_counted_for_its_caller() -> None:
    for seed in range(20):
        draw, flood = random.Random(seed), Floods(Folding(keys=40, each=8, sums=200))
        made: Counter[tuple[str | None, str]] = Counter()
        for _ in range(2000):
            who, action = f"c{draw.randrange(12)}", draw.choice(["call", "describe"])
            flood.refuse(who, f"t{int(draw.expovariate(0.1))}", action, draw.choice(["a", "b"]))
            made[who, action] += 1
            if draw.random() < 0.02:
                flood.now += draw.choice([1, 30, 61])
                flood.due()
        flood.due(everything=True)
        assert flood.counted == made, seed
