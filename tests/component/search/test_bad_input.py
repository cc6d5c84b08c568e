"""Whatever is sent to a search is answered within a bounded time: a precise problem, or an answer within the view.

Both stores are real, and so is the embedder; what is sent is neither logged nor counted under a label of its own.
"""

import json
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emptied import empty
from realparts.weaviate import Weaviate
from registry_harness import RunningRegistry, binding, running_registry, tool
from suites import examples
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.search import seed_formula
from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.text import query_terms

SECONDS = 2.0
"""Of a processor, more than enough for any one request; a machine that does other work makes no test wait for it."""
WAITED = 15.0
"""Seconds until an answer, wherever they were spent: stores are processes of their own, and given more than that."""
TOOLS = [
    tool("calculator", description="Compute an arithmetic expression.", scopes=("s",), tags=("math",)),
    tool("forecast", description="Tomorrow's weather for a city.", scopes=("s",), tags=("天气", "weather")),
    tool("read_cn", description="读取文件内容并返回文本", scopes=("s",)),
    tool("read_ar", description="قراءة ملف من المجلد المشترك", scopes=("s",)),
    tool("read_ko", description="파일을 읽고 텍스트를 반환합니다", scopes=("s",)),
    tool("cafe", description="Réserver une table au café", scopes=("s",)),
    tool("secret_door", description="Open the weather calculator 文件 door.", scopes=("hidden",)),
]
SEEN = {t.tool_id for t in TOOLS} - {"team/secret-door"}


@contextmanager
def indexed(**place: Any) -> Iterator[RunningRegistry]:
    """A registry with the packaged embedder, and all tools in its index."""
    bindings, embedder = [binding("bot", ["s"])], OnnxEmbedder.packaged()
    with running_registry(TOOLS, bindings, embedder=embedder, patient=True, **place) as r:
        body = {"epoch": 1, "upsert": [t.tool_id for t in TOOLS]}
        assert len(r.admin("POST", "/v1/admin/index", json=body).json()["indexed"]) == len(TOOLS)
        yield r
        r.on_loop(lambda: empty(r.registry.store))


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningRegistry]:
    """For what never reaches a store."""
    with indexed() as r:
        yield r


@pytest.fixture(scope="module", params=["embedded", pytest.param("weaviate", marks=pytest.mark.real)])
def registry(request: pytest.FixtureRequest) -> Iterator[RunningRegistry]:
    """One on each store."""
    place: dict[str, Any] = {}
    if request.param == "weaviate":
        server: Weaviate = request.getfixturevalue("weaviate_server")
        place["store"] = {
            "kind": "weaviate",
            "host": "127.0.0.1",
            "http_port": server.http_port,
            "grpc_port": server.grpc_port,
            "collection_prefix": f"Test{secrets.token_hex(4)}",
        }
    with indexed(**place) as r:
        yield r


def sent(r: RunningRegistry, body: Any, path: str = "/v1/search") -> httpx.Response:
    """The answer, which cost little, and no long wait: caller and registry are this process, the store may not be."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {**r.auth("team", "bot"), "content-type": "application/json"}
    began, start = time.perf_counter(), time.process_time()
    answer = r.http.post(r.url + path, headers=headers, content=content)
    assert time.process_time() - start < SECONDS, content[:80]
    assert time.perf_counter() - began < WAITED, content[:80]
    return answer


def sane(answer: httpx.Response) -> Any:
    """The hits of an answer that shows what may be seen, once, with honest numbers."""
    assert answer.status_code == 200, answer.text
    found = answer.json()
    ids = [hit["tool_id"] for hit in found["tools"]]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= SEEN
    for hit in found["tools"]:
        assert hit.get("confidence") is None or 0 <= hit["confidence"] <= 1
        assert hit.get("why") is None or (len(hit["why"]) < 500 and hit["why"].isprintable())
    assert found["degraded"] is False
    return ids


def refused(answer: httpx.Response, code: str, words: str) -> None:
    """A problem document that says what is wrong, and does not grow with what was sent."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["code"] == code, found
    assert words in json.dumps(found)
    assert len(answer.content) < 4_000


FINDER, SEMANTIC = "/v1/compat/intelligent_tool_finder", "/api/search/semantic"
WORDS = "find the weather in a city and then compute an expression and also "
ODD_QUERIES = [
    "",
    "   \n\t\r ",
    "x" * 10_000,
    WORDS * 140,
    "a b c d e f g h i j k l m n" + " " * 1_980 + "x",
    "a b c d e f g h i j k l m n" + "\t \n" * 650 + "x",
    "a b c d e f g h i j k l m n, and" + "\u3000" * 1_950 + "x",
    "and " * 2_000,
    "\x00",
    "\x00\x01\x02\x07\x1b[31m weather \x7f\x9f\u202e\ufeff\u2028",
    "\uffff\ufffe\U0010ffff",
    "e" + "\u0301" * 9_000,
    "\ufdfa" * 2_000,  # eighteen characters each, once normalised
    "😀👩‍👩‍👧‍👦🏳️‍🌈",
    "שלום ไทย हिन्दी ελληνικά русский",
    "'; DROP TABLE tools; --",
    "' OR 1=1 UNION SELECT * FROM entries --",
    '{ Get { ToolcribTools(limit: 10, where: {path: ["scopes"], operator: Like, valueText: "*"}) { name } } }',
    'name:* AND (foo OR "bar"~2) NOT scopes:s /.*/ [a TO z]^9 && \\',
    "(a+)+$" * 300,
    "a" * 1_999 + "!",
    "._-" * 660,
    "aA1" * 660,
    "../../etc/passwd%00 ${jndi:ldap://x} {{7*7}} <script>",
    "!" * 2_000,
    " ".join(f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmnprstvwxyz"),
    " ".join(f"#{i}" for i in range(1_500)),
]


@pytest.mark.parametrize("query", ODD_QUERIES, ids=range(len(ODD_QUERIES)))
def test_any_text_is_a_request_in_words(registry: RunningRegistry, query: str) -> None:
    sane(sent(registry, {"query": query, "min_score": 0}))
    sane(sent(registry, {"query": query, "tags": ["math"], "servers": ["none"], "top_k_servers": 1}))


@pytest.mark.parametrize("query", ODD_QUERIES, ids=range(len(ODD_QUERIES)))
def test_any_text_is_a_request_in_every_mode_and_on_the_compatible_routes(
    plain: RunningRegistry, query: str
) -> None:
    for mode in ("lexical", "dense", "compat"):
        sane(sent(plain, {"query": query, "search_mode": mode, "min_score": 0}))
    for path, body in (
        (FINDER, {"natural_language_query": query, "top_n_tools": 3}),
        (SEMANTIC, {"query": query}),
    ):
        answer = sent(plain, body, path)
        if answer.status_code == 200:
            assert "secret_door" not in answer.text
        else:
            refused(answer, "invalid_request", "tags")


def test_a_query_without_a_word_is_as_none(registry: RunningRegistry) -> None:
    wanted = sent(registry, {}).json()["tools"]

    assert {hit["tool_id"] for hit in wanted} == SEEN
    for query in ("", "  ", "\n\t", None):
        found = sent(registry, {"query": query}).json()
        assert (found["search_mode"], found["tools"]) == ("filter", wanted)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("读取文件", "read-cn"),
        ("قراءة ملف", "read-ar"),
        ("파일을 읽고", "read-ko"),
        ("cafe\u0301", "cafe"),
        ("ＣＡＦÉ", "cafe"),
        ("weather\x00\x1b[0m\u202e", "forecast"),
    ],
)
def test_other_languages_and_other_spellings_of_a_letter_find_their_tools(
    registry: RunningRegistry, query: str, name: str
) -> None:
    assert sane(sent(registry, {"query": query, "min_score": 0}))[0] == f"team/{name}"


REFUSED = [
    ({"query": "x" * 10_001}, "invalid_request", "at most 10000 characters"),
    ({"query": "x" * 1_000_000}, "invalid_request", "body.query"),
    ({"query": 5}, "invalid_request", "body.query"),
    ({"query": ["a"]}, "invalid_request", "body.query"),
    ({"query": {"a": "b"}}, "invalid_request", "body.query"),
    ({"query": True}, "invalid_request", "valid string"),
    ({"tags": ["a"] * 1_000}, "invalid_request", "at most 16 items"),
    ({"tags": [1] * 300_000}, "invalid_request", "body.tags.0"),
    ({"tags": [[]] * 100_000}, "invalid_request", "body.tags.0"),
    ({"tags": ["x" * 10_000]}, "invalid_request", "at most 64 characters"),
    ({"tags": "math"}, "invalid_request", "body.tags"),
    ({"tags": {"math": 1}}, "invalid_request", "body.tags"),
    ({"tags": [None]}, "invalid_request", "body.tags.0"),
    ({"servers": ["a"] * 33}, "invalid_request", "at most 32 items"),
    ({"servers": ["x" * 129]}, "invalid_request", "at most 128 characters"),
    ({"query": "x", "limit": 0}, "invalid_request", "greater than or equal to 1"),
    ({"query": "x", "limit": -1}, "invalid_request", "greater than or equal to 1"),
    ({"query": "x", "limit": 101}, "invalid_request", "less than or equal to 100"),
    ({"query": "x", "limit": 10**30}, "invalid_request", "body.limit"),
    ({"query": "x", "limit": 1.5}, "invalid_request", "valid integer"),
    ({"query": "x", "limit": None}, "invalid_request", "body.limit"),
    ({"query": "x", "limit": "many"}, "invalid_request", "body.limit"),
    ({"query": "x", "limit": "5"}, "invalid_request", "body.limit: Input should be a valid integer"),
    ({"query": "x", "limit": True}, "invalid_request", "body.limit: Input should be a valid integer"),
    ({"query": "x", "min_score": -0.1}, "invalid_request", "greater than or equal to 0"),
    ({"query": "x", "min_score": 1.1}, "invalid_request", "less than or equal to 1"),
    ({"query": "x", "min_score": "inf"}, "invalid_request", "body.min_score"),
    ({"query": "x", "min_score": "nan"}, "invalid_request", "body.min_score"),
    ({"query": "x", "min_score": "0.1"}, "invalid_request", "body.min_score: Input should be a valid number"),
    ({"query": "x", "min_score": True}, "invalid_request", "body.min_score: Input should be a valid number"),
    ({"query": "x", "search_mode": "best"}, "invalid_request", "'hybrid', 'lexical', 'dense' or 'compat'"),
    ({"query": "x", "search_mode": 1}, "invalid_request", "body.search_mode"),
    ({"query": "x", "namespaces": ["a"] * 33}, "invalid_request", "at most 32 items"),
    ({"query": "x", "states": ["Disabled"]}, "invalid_request", "'Active' or 'Deprecated'"),
    ({"query": "x", "states": ["Active"] * 9}, "invalid_request", "at most 2 items"),
    ({"query": "x", "top_k_servers": 0}, "invalid_request", "body.top_k_servers"),
    ({"query": "x", "top_k_servers": "2"}, "invalid_request", "body.top_k_servers: Input should be a valid"),
    ({"query": "x", "top_k_servers": True}, "invalid_request", "body.top_k_servers: Input should be a valid"),
    ({"query": "x", "top_k_servers": 10**400}, "invalid_json", "infinity"),
    ({"query": "x", "qeury": 1}, "invalid_request", "body.qeury: unknown field; did you mean query?"),
    ({"query": "x", "k" * 500_000: 1}, "invalid_request", "unknown field"),
    ({f"k{i}": 1 for i in range(80_000)}, "invalid_request", "body.k0"),
    ([], "invalid_request", "body"),
    (None, "invalid_request", "body"),
    ("weather", "invalid_request", "body"),
    (b"", "invalid_request", "required, but missing"),
    (b'{"query": "a", "query": "b"}', "invalid_json", "'query' appears twice"),
    (b'{"query": "\\ud83d"}', "invalid_json", "surrogate"),
    (b'{"query": "\xff\xfe"}', "invalid_json", "line 1"),
    (b'{"query": "\x00"}', "invalid_json", "line 1"),
    (b'{"query": "x", "min_score": NaN}', "invalid_json", "line 1"),
    (b'{"query": "x", "min_score": 1e999}', "invalid_json", "infinity"),
    (b'{"query": "x", "limit": -Infinity}', "invalid_json", "line 1"),
    (b'{"limit": ' + b"9" * 1_000_000 + b"}", "invalid_json", "infinity"),
    (b'{"query": ' + b"[" * 1_000_000, "invalid_json", "nested deeper than 32"),
    (b'{"tags": ' + b'{"a":' * 150_000, "invalid_json", "nested deeper than 32"),
    (b'"' + b"\\" * 1_000_000, "invalid_json", "line 1"),
    (b" " * 1_000_000, "invalid_json", "empty"),
    (b'{"query": "' + b"x" * (1 << 20) + b'"}', "too_large", "1048576 bytes"),
]


@pytest.mark.parametrize(("body", "code", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_request_is_refused_and_told_why(
    plain: RunningRegistry, body: Any, code: str, words: str
) -> None:
    refused(sent(plain, body), code, words)


def test_a_whole_number_with_a_point_is_a_number(plain: RunningRegistry) -> None:
    body = {"query": "weather", "limit": 1.0, "top_k_servers": 1.0, "min_score": 0}
    assert len(sane(sent(plain, body))) == 1


def test_the_compatible_searches_stay_as_lenient_as_those_they_imitate(plain: RunningRegistry) -> None:
    finder = sent(plain, {"query": "weather", "top_n": "1"}, "/v1/compat/intelligent_tool_finder")
    semantic = sent(plain, {"query": "weather", "max_results": "1"}, "/api/search/semantic")
    assert (finder.status_code, finder.json()["total_results"]) == (200, 1)
    assert (semantic.status_code, len(semantic.json()["tools"])) == (200, 1)


@pytest.mark.parametrize(
    "body", [{"tags": ["\x00"]}, {"tags": [""]}, {"servers": ["*"]}, {"tags": ["' OR 1=1"]}]
)
def test_a_tag_or_server_that_nothing_has_finds_nothing(registry: RunningRegistry, body: Any) -> None:
    assert sane(sent(registry, body)) == []
    assert sane(sent(registry, {"query": "weather", **body})) == []


def test_a_tag_is_no_pattern_and_ignores_case(registry: RunningRegistry) -> None:
    for tags in (["Weather"], ["天气"], ["天气", "WEATHER"]):
        assert sane(sent(registry, {"query": "rain", "tags": tags, "min_score": 0})) == ["team/forecast"]
    assert sane(sent(registry, {"query": "rain", "tags": ["wea*"]})) == []


# a few of each kind: letters, separators, syntax of other languages, what is not printed, half a character
characters = st.sampled_from(
    "aAbz09_-./: ,;\n\t\r\x00\x1b\x7f\"'\\{}[]()*%$&|<>é\u0301ßıİ天気عא한ﷺ😀\u200d\u202e\ufeff\ud800\udfff"
)


def texts(most: int) -> st.SearchStrategy[str]:
    return st.text(characters, max_size=most)


plain_values = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts(20)
)
anything = (
    plain_values | st.lists(plain_values, max_size=3) | st.dictionaries(texts(5), plain_values, max_size=2)
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "query": texts(100) | anything,
        "tags": st.lists(texts(70), max_size=3) | anything,
        "servers": st.lists(texts(140), max_size=3) | anything,
        "limit": st.integers(-5, 200) | anything,
        "min_score": st.floats(0, 1) | anything,
        "top_k_servers": st.integers(-1, 110) | anything,
        "namespaces": st.lists(st.sampled_from(["team", "TEAM", "none", "*", ""]), max_size=3) | anything,
        "states": st.lists(st.sampled_from(["Active", "Deprecated"]), max_size=2) | anything,
        "search_mode": st.sampled_from(["hybrid", "lexical", "dense", "compat"]) | anything,
    },
)


@given(body=bodies)
@example(body={"query": "\ud800"})
@settings(
    examples(40),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_body_breaks_a_search(registry: RunningRegistry, body: Any) -> None:
    answer = sent(registry, body)

    if answer.status_code != 200:
        assert (answer.status_code, answer.json()["code"]) in (
            (400, "invalid_request"),
            (400, "invalid_json"),
        )
    else:
        sane(answer)


@pytest.mark.usefixtures("no_collections")
@given(text=texts(2_000))
@settings(examples(100), derandomize=True)
def test_any_text_is_cut_into_words_and_clauses_in_time(text: str) -> None:
    start = time.thread_time()

    assert len(query_terms(text)) <= 200
    assert len(seed_formula.words(text)) <= 64
    assert 1 <= len(clauses(text)) <= 6
    assert time.thread_time() - start < 0.5


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(
    "filler", [" ", "\n", "\t \n", ", and ", "and\u3000", ". ", "a_", "-", "1a", "\ufdfa"]
)
def test_long_runs_of_anything_cost_no_square(filler: str) -> None:
    text = ("a b c d e f g h i j k l m n o p " + filler * 2_000)[:1_999] + "x"
    start = time.thread_time()

    query_terms(text)
    clauses(text)
    seed_formula.words(text)

    assert time.thread_time() - start < 0.15


def test_nothing_that_was_sent_is_logged_or_counted_by_its_name(
    plain: RunningRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    def series() -> set[str]:
        text = plain.metrics()
        return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}

    def all_kinds(word: str) -> None:
        sent(plain, {"query": f"weather {word}"})
        sent(plain, {"query": word, "tags": [word], "servers": [word]})
        sent(plain, {"query": "x", word: word})
        sent(plain, {"query": "x", "search_mode": word})
        sent(plain, {"query": "x", "limit": word})
        sent(plain, b'{"query": "' + word.encode() + b'\\ud800"}')

    with caplog.at_level(logging.DEBUG):
        all_kinds("zyxwvut-0")
        before = series()
        for i in range(1, 6):
            all_kinds(f"zyxwvut-{i}")

    assert series() == before
    assert not [line for line in before if "zyxwvut" in line]
    assert "zyxwvut" not in caplog.text
