"""Every method asked every request of one catalog: figures, times, and what the stores need."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import product
from baselines import Baseline, Bm25, Dense, Keyword, Seed
from folder import Query, ToolSet, counted
from footprint import footprint
from metrics import DEPTH, Figures, judge, mean
from vectors import Remembered

from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.entry import Vector

if TYPE_CHECKING:
    from realparts.weaviate import Weaviate

METHODS = ("keyword", "bm25", "dense", "seed", "lexical", "hybrid", "hybrid_uncut", "hybrid_weaviate")
"""`hybrid_uncut`: with the hits that are left out because nothing fits; what it has more is what the cut costs."""


@dataclass
class Result:
    """One method on one catalog."""

    method: str
    each: list[tuple[Query, Figures]] = field(default_factory=list)
    found: list[list[str]] = field(default_factory=list)
    search_seconds: list[float] = field(default_factory=list)
    """A value a request: from the text to the answer, less the wait for vectors."""
    whole_seconds: list[float] = field(default_factory=list)
    """A value a request of the sample: from the text to the answer, the encoding included."""
    cpu_seconds: float = 0.0
    """Processor time of this process in all of them: it hardly depends on what else the machine does."""
    needs: dict[str, float] = field(default_factory=dict)
    """`build_seconds` and `memory_bytes` where the method has a store."""

    @property
    def figures(self) -> Figures:
        """The mean of the requests."""
        return mean(figures for _, figures in self.each)

    def figures_of(self, origin: str) -> Figures:
        """The mean of the requests of one set."""
        return mean(figures for query, figures in self.each if query.origin == origin)

    def add(self, query: Query, found: list[str], seconds: float) -> None:
        """Take in one answer."""
        self.each.append((query, judge(found, query.sought)))
        self.found.append(found[:DEPTH])
        self.search_seconds.append(seconds)


@dataclass
class Evaluation:
    """All methods on one catalog."""

    tools: ToolSet
    results: dict[str, Result]
    encode_query_seconds: list[float] = field(default_factory=list)
    """A value a request of the sample: the whole text, without its parts."""
    encode_tool_seconds: float = 0.0
    """The mean of a few tools."""
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Keep what goes wrong inside as a problem: what the others found is not lost for it."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{what} failed on {self.tools.name}: {type(error).__name__}: {error}")
            print(self.problems[-1], file=sys.stderr, flush=True)


@dataclass
class Bench:
    """What measures: the embedder, a Weaviate or none, which methods, and how many requests are timed as a whole."""

    embedder: Remembered
    weaviate: Weaviate | None = None
    methods: Collection[str] = METHODS
    sample: int = 100
    needs: bool = True
    """Whether to measure what the embedded store needs."""

    async def evaluate(self, tools: ToolSet) -> Evaluation:
        """Ask every method every request of `tools`."""
        if refused := sum(product.refused(q.text) for q in tools.queries):
            said = counted(refused, "query is", "queries are")
            remark = f"{said} longer than the registry takes: there our methods find nothing"
            tools = dataclasses.replace(tools, remarks=(*tools.remarks, remark))
        done = Evaluation(tools, {})
        vectors = await self.embedder.embed_tools(tools.tools)
        texts = [q.text for q in tools.queries]
        # in one go, so that two cores can share the work
        await self.embedder.embed_requests([[q, *(c if len(c := clauses(q)) > 1 else ())] for q in texts])
        asked = await self.embedder.embed_queries(texts)
        if self.sample:
            await self._time_encoding(done)
        for baseline in self._baselines(tools, vectors):
            result = done.results[baseline.name] = Result(baseline.name)
            before = time.process_time()
            for query, vector in zip(tools.queries, asked, strict=True):
                start = time.perf_counter()
                found = baseline.rank(query.text, vector)
                result.add(query, found, time.perf_counter() - start)
            result.cpu_seconds = time.process_time() - before
            encoding = done.encode_query_seconds if baseline.needs_vector else [0.0] * self.sample
            result.whole_seconds = [e + s for e, s in zip(encoding, result.search_seconds, strict=False)]
        async with product.embedded(tools.tools, vectors, self.embedder) as ours:
            for method in ("lexical", "hybrid", "hybrid_uncut"):
                if method in self.methods:
                    with done.noting(method):
                        done.results[method] = await self._ask(ours, method, tools.queries)
        if self.needs and "hybrid" in done.results:
            with done.noting("what the store needs"):
                done.results["hybrid"].needs = footprint(tools.tools, vectors)
        if self.weaviate is not None and "hybrid_weaviate" in self.methods:
            with done.noting("hybrid_weaviate"):
                async with product.on_weaviate(self.weaviate, tools.tools, vectors, self.embedder) as (
                    ours,
                    needs,
                ):
                    done.results["hybrid_weaviate"] = await self._ask(ours, "hybrid_weaviate", tools.queries)
                    done.results["hybrid_weaviate"].needs = needs
        return done

    async def _ask(self, ours: product.Product, method: str, queries: Sequence[Query]) -> Result:
        result = Result(method)
        said = time.monotonic()
        mode = "lexical" if method == "lexical" else ours.mode
        uncut = method == "hybrid_uncut"
        before = time.process_time()
        for number, query in enumerate(queries):
            answer = await ours.ask(query.text, mode, all_hits=uncut)
            result.add(query, answer.found, answer.seconds - answer.embed_seconds)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"  {method}: {number} of {len(queries)}", file=sys.stderr, flush=True)
        result.cpu_seconds = time.process_time() - before
        async with self._live():
            for query in queries[: 0 if uncut else self.sample]:
                result.whole_seconds.append((await ours.ask(query.text, mode)).seconds)
        return result

    async def _time_encoding(self, done: Evaluation) -> None:
        async with self._live():
            for query in done.tools.queries[: self.sample]:
                start = time.perf_counter()
                await self.embedder.embed_request([query.text])
                done.encode_query_seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
            few = done.tools.tools[:20]
            await self.embedder.embed_tools(few)
            done.encode_tool_seconds = (time.perf_counter() - start) / len(few)

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        self.embedder.live = True
        try:
            yield
        finally:
            self.embedder.live = False

    def _baselines(self, tools: ToolSet, vectors: Vector) -> list[Baseline]:
        made: list[Baseline] = []
        if "keyword" in self.methods:
            made.append(Keyword(tools.tools))
        if "bm25" in self.methods:
            made.append(Bm25(tools.tools))
        if "dense" in self.methods:
            made.append(Dense(tools.tools, vectors))
        if "seed" in self.methods:
            made.append(Seed(tools.tools, vectors))
        return made


def overlap(one: Result, other: Result) -> dict[str, float]:
    """How far two methods agree: the mean share of the first ten that both have, and how often the first is the same."""
    pairs = list(zip(one.found, other.found, strict=True))
    shared = [len({*a} & {*b}) / max(1, len(a), len(b)) if a or b else 1.0 for a, b in pairs]
    return {
        "overlap@10": sum(shared) / len(pairs),
        "same_first": sum(a[:1] == b[:1] for a, b in pairs) / len(pairs),
    }
