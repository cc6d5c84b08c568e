"""Searching with an embedder that fails, refuses, or is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hash_embedder import HashEmbedder
from small_index import BrokenEmbedder, Clock, fill, ids, own, tool, view_of
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderRefused, EmbedderUnavailable
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Searcher

pytestmark = pytest.mark.anyio


async def test_an_embedder_that_fails_leaves_search_to_words_and_is_left_alone_for_a_while(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(3)]
    await fill(exact, entries)
    embedder = BrokenEmbedder()
    searcher = searchers(exact, embedder, clock=Clock())

    answers = [await searcher.search(view_of(entries), Wanted(own(1), min_score=0.0)) for _ in range(3)]

    assert {(a.mode, a.degradation) for a in answers} == {("lexical", "embedder_unavailable")}
    assert all(ids(a) == ["ns/tool-0001"] for a in answers)
    assert embedder.asked == 1


async def test_a_request_that_the_embedder_refuses_takes_the_meaning_from_nobody_else(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    class Refusing(HashEmbedder):
        away = False

        async def embed_request(self, texts: Sequence[str]) -> Vector:
            if self.away:
                raise EmbedderUnavailable("away")
            if any("x" * 600 in t for t in texts):
                raise EmbedderRefused("too long")
            return await super().embed_request(texts)

    entries = [tool(i) for i in range(3)]
    await fill(exact, entries)
    embedder, clock = Refusing(), Clock()
    searcher = searchers(exact, embedder, clock=clock)

    async def ask(text: str) -> tuple[str, str, list[str]]:
        answer = await searcher.search(view_of(entries), Wanted(text, min_score=0.0))
        return answer.mode, answer.degradation, ids(answer)[:1]

    too_long, other = f"{own(1)} {'x' * 700}", own(2)
    by_words = ("lexical", "embedder_unavailable", ["ns/tool-0001"])
    for _ in range(3):
        assert await ask(too_long) == by_words
        assert await ask(other) == ("hybrid", "", ["ns/tool-0002"])

    # and of an outage it is the end, for the embedder answered
    embedder.away = True
    assert (await ask(other))[0] == "lexical"
    embedder.away = False
    clock.now += 1
    assert await ask(too_long) == by_words
    assert (await ask(other))[0] == "hybrid"


async def test_without_an_embedder_lexical_search_is_what_is_configured(
    tmp_path: Path, searchers: Callable[..., Searcher]
) -> None:
    store = await EmbeddedStore.open(tmp_path, identity_of(NullEmbedder()))

    answer = await searchers(store, NullEmbedder()).search(
        view_of(tool(i) for i in range(3)), Wanted(own(2), min_score=0.0)
    )

    assert (answer.mode, answer.degraded, ids(answer)) == ("lexical", False, ["ns/tool-0002"])
    await store.aclose()
