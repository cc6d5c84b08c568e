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
        "the search index does not answer (TimeoutError): search goes on without it",
        "the search index answers again",
    ]
    assert not outage.lasts
