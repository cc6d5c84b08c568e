"""A part of search that is away is left alone for a while, and said so once."""

import logging

import pytest

from toolcrib_registry.search.outage import Outage


def test_an_outage_is_said_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outage = Outage(lambda: now[0], "the search index")

    with caplog.at_level(logging.INFO):
        for _ in range(50):
            outage.failed(TimeoutError())
            now[0] += 1.0
        outage.over()
        outage.over()

    assert [r.getMessage() for r in caplog.records] == [
        "the search index is unavailable (TimeoutError): searching without it",
        "the search index is available again",
    ]
    assert not outage.lasts


def test_after_each_pause_one_caller_tries_and_the_others_do_not_wait() -> None:
    now = [0.0]
    outage = Outage(lambda: now[0], "the embedder")
    assert not any(outage.keeps_away() for _ in range(5))
    for _ in range(5):  # all five waited for it
        outage.failed(TimeoutError())

    tried = []
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        now[0] += pause - 0.01
        assert outage.keeps_away()
        now[0] += 0.02
        tried.append([outage.keeps_away() for _ in range(5)])
        now[0] += 2.0  # it hangs
        assert outage.keeps_away()
        outage.failed(TimeoutError())
        now[0] -= 0.01
    assert tried == [[False, True, True, True, True]] * 7

    now[0] += 10.1
    assert not outage.keeps_away()
    outage.over()
    assert not any(outage.keeps_away() for _ in range(5))


def test_a_search_that_tries_and_is_given_up_blocks_no_other() -> None:
    now = [0.0]
    outage = Outage(lambda: now[0], "the embedder")
    outage.failed(TimeoutError())
    now[0] = 0.6
    assert not outage.keeps_away()

    now[0] = 3.5
    assert outage.keeps_away()
    now[0] = 3.7
    assert not outage.keeps_away()
