"""A view that deny and allow patterns cut out of a large catalog is searched as if nothing else existed.

The same questions are asked of a registry that holds the visible tools and nothing else: same hits, same order, same
confidences. (Timing is out of scope.)
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from hash_embedder import HashEmbedder
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.publish import PublishedTool

pytestmark = pytest.mark.guarantee

TOOLS = 2_000
VERBS = "read write list delete create update send fetch convert schedule".split()  # noqa: SIM905
NOUNS = "file invoice customer ticket city flight hotel backup database mail user order page image log report".split()  # noqa: SIM905
RARE = [f"{a}{b}{c}" for a in "bdgkmp" for b in "aeiou" for c in ("lor", "nix", "tus", "vane", "zet")]
CUTS: dict[str, dict[str, Any]] = {
    # share in percent: a binding that grants the one scope of all tools, and what cuts it
    "100": {"deny": ("nothing_*",)},
    "10": {"deny": tuple(f"*{digit}" for digit in range(1, 10))},
    "1": {"allow": ("*00",), "deny": ("*_secret",)},
    "0.1": {
        "allow": ("*00", "*50"),
        "deny": tuple(f"*{digit}{half}0" for digit in range(10) for half in (0, 5) if digit or half),
    },
}
ASKED: list[dict[str, Any]] = [
    {"query": "read a file", "min_score": 0},
    {"query": "read a file"},
    {"query": "read a file", "search_mode": "lexical", "min_score": 0},
    {"query": "read a file", "search_mode": "dense", "min_score": 0},
    {"query": "read a file", "search_mode": "compat", "limit": 50},
    {"query": "delete the invoice of a customer", "limit": 50, "min_score": 0},
    {"query": "schedule a flight and book a hotel in the city, then send me a mail with the report", "limit": 20, "min_score": 0},
    {"query": "read_file_0100", "min_score": 0},
    {"query": f"{RARE[3]} {RARE[40]}"},
    {"query": "backup database", "tags": ["T1"]},
    {"query": "backup database", "servers": ["srv1", "srv5"], "limit": 100, "min_score": 0},
    {"query": "list users", "min_score": 0.05},
    {"query": "list users", "top_k_servers": 2, "min_score": 0},
    {"query": "qqq www eee", "min_score": 0},
    {"query": "!!!", "min_score": 0},
    {"tags": ["t2"]},
    {},
]  # fmt: skip


def catalog() -> list[PublishedTool]:
    """Two thousand tools; rare words and common ones are spread so that what is hidden would weigh."""
    draw = random.Random(20261122)
    made = []
    for number in range(TOOLS):
        words = draw.choices(NOUNS, k=3) + draw.choices(VERBS, k=2) + draw.choices(RARE, k=2)
        if number % 10:
            words += draw.choices(RARE[:10], k=2)
        made.append(
            tool(
                f"{draw.choice(VERBS)}_{draw.choice(NOUNS)}_{number:04d}",
                description=" ".join(draw.sample(words, len(words))) + ".",
                tags=(f"t{number % 3}",) if number % 4 else (),
                server=f"srv{draw.randrange(20)}",
                scopes=("s",),
            )
        )
    return made


def indexed(stack: ExitStack, tools: Sequence[PublishedTool], bindings: Any) -> RunningRegistry:
    """A registry that holds `tools`, all of them in its index."""
    r = stack.enter_context(running_registry(tools, bindings, embedder=HashEmbedder(32), patient=True))
    ids = [t.tool_id for t in tools]
    for start in range(0, len(ids), 200):
        body: dict[str, Any] = {"epoch": 1, "upsert": ids[start : start + 200]}
        answer = r.admin("POST", "/v1/admin/index", json=body, timeout=60).json()
        assert len(answer["indexed"]) == len(body["upsert"]), answer
    return r


@pytest.fixture(scope="module")
def large() -> Iterator[tuple[RunningRegistry, dict[str, PublishedTool]]]:
    """The registry that holds everything; one account for each cut."""
    tools = catalog()
    bindings = [binding(f"bot-{i}", ["s"], **cut) for i, cut in enumerate(CUTS.values())]
    with ExitStack() as stack:
        yield indexed(stack, tools, bindings), {t.tool_id: t for t in tools}


def answer(r: RunningRegistry, account: str, body: dict[str, Any]) -> Any:
    """What is answered, without the revision, which says how much was ever published."""
    found = r.http.post(r.url + "/v1/search", headers=r.auth("team", account), json=body)
    assert found.status_code == 200, found.text
    return {k: v for k, v in found.json().items() if k != "revision"}


@pytest.mark.parametrize(
    "share", [pytest.param(share, marks=[pytest.mark.long] if share == "100" else []) for share in CUTS]
)
def test_it_answers_as_a_registry_that_holds_only_what_is_visible(
    large: tuple[RunningRegistry, dict[str, PublishedTool]], share: str
) -> None:
    everything, tools = large
    account = f"bot-{list(CUTS).index(share)}"
    listed: list[str] = []
    cursor: dict[str, str] = {}
    while not listed or cursor:
        page = everything.http.get(
            everything.url + "/v1/tools",
            params={"limit": 500, **cursor},
            headers=everything.auth("team", account),
        ).json()
        listed += [t["tool_id"] for t in page["tools"]]
        cursor = {"cursor": page["next_cursor"]} if page.get("next_cursor") else {}
    assert len(listed) == float(share) / 100 * TOOLS

    with ExitStack() as stack:
        alone = indexed(stack, [tools[i] for i in reversed(listed)], [binding(account, ["s"])])
        hits = 0
        for body in (*ASKED, ASKED[0]):
            ask = partial(answer, account=account, body=body)
            wanted, found = ask(alone), ask(everything)
            assert found == wanted, body
            assert not found["degraded"]
            hits += len(found["tools"])
    assert hits >= len(ASKED) - 5
