"""Long requests cut into the things they ask for."""

from __future__ import annotations

import time

import pytest

from toolcrib_registry.search.clauses import MOST, clauses


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "Find flights to Oslo for me on Monday morning, then book a hotel there and send me the receipt.",
            ["Find flights to Oslo for me on Monday morning", "book a hotel there", "send me the receipt"],
        ),
        (
            "I am writing about Rome. Please list three causes of its fall! Save it to /srv/rome.md. Thank you.",
            ["I am writing about Rome", "Please list three causes of its fall", "Save it to /srv/rome.md"],
        ),
        (
            "- read the sales of last year\n- plot them by month\n\n- mail the figure to the whole team",
            ["- read the sales of last year", "- plot them by month", "- mail the figure to the whole team"],
        ),
        ("查询北京明天的天气和空气质量情况。然后把结果发送给我的同事。", ["查询北京明天的天气和空气质量情况", "然后把结果发送给我的同事"]),
    ],
)  # fmt: skip
def test_a_long_request_is_cut_into_what_it_asks_for(text: str, parts: list[str]) -> None:
    assert clauses(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "weather",
        "read the file. then delete it and send a mail",
        "What will the weather in Oslo be next month according to the long range forecast of the institute?",
        "Please show me the salt and pepper mills that are on offer in the shops of my home town, e.g. www.a.com",
    ],
)
def test_a_request_that_is_short_or_asks_for_one_thing_stays_whole(text: str) -> None:
    assert clauses(text) == [text]


def test_a_request_of_many_things_has_few_clauses_and_loses_no_word() -> None:
    text = " ".join(f"Please find thing number{i} for me." for i in range(20))

    found = clauses(text)

    assert len(found) == MOST
    assert all(f"number{i}" in " ".join(found) for i in range(20))


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(
    "text", [" " * 2_000 + "a", ". " * 1_000, "and then " * 250, "。" * 2_000, "\n" * 2_000]
)
def test_any_text_is_cut_at_once(text: str) -> None:
    start = time.thread_time()

    clauses(text)

    assert time.thread_time() - start < 0.1
