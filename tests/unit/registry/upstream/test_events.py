"""Server-sent events are read as the standard has them, however they are cut into pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_registry.upstream.errors import AnswerBroken
from toolcrib_registry.upstream.events import Event, Events

TEXT = (
    b"\xef\xbb\xbf: comment\r\n\r\nevent: endpoint\rdata: /a\r\rid: 1\ndata: one\ndata:two\n\n"
    b'retry: 5\n\ndata\n\ndata: {"a": 1}\r\n\r\ndata: unfinished\n'
)
SAID = [
    Event("endpoint", b"/a"),
    Event("message", b"one\ntwo"),
    Event("message", b""),
    Event("message", b'{"a": 1}'),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    events, edges = Events(1_000), [0, *sorted(cuts), len(TEXT)]

    said = [e for a, b in pairwise(edges) for e in events.feed(TEXT[a:b])]

    assert said == SAID


@pytest.mark.parametrize("text", [b"data: " + b"x" * 200, b"data: xxxxx\n" * 40, b"x" * 200])
def test_an_event_is_bounded_before_it_is_whole(text: bytes) -> None:
    events = Events(100)

    def fed() -> None:
        for n in range(0, len(text), 10):
            list(events.feed(text[n : n + 10]))

    with pytest.raises(AnswerBroken):
        fed()
