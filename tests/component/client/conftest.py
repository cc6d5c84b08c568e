"""The client, with an event loop and without one, as the same object to the tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from toolcrib_client import AsyncToolcrib, Toolcrib

Connect = Callable[..., Any]


class OnALoop:
    """`AsyncToolcrib` on a loop in a thread of its own."""

    def __init__(self, portal: Any, crib: AsyncToolcrib) -> None:
        self._portal, self._crib = portal, crib

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._crib, name)
        return lambda *args, **named: self._portal.call(lambda: method(*args, **named))

    def watch(self) -> Iterator[Any]:
        stream = self._crib.watch()
        try:
            while True:
                yield self._portal.call(anext, stream)
        finally:
            self._portal.call(stream.aclose)


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """`connect(url, token_source, …)` gives a client that ends with the test."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal()) if request.param == "async" else None

        def made(url: str, source: Any, **options: Any) -> Any:
            if portal is None:
                return stack.enter_context(Toolcrib(url, source, **options))
            crib = AsyncToolcrib(url, source, **options)
            stack.callback(portal.call, crib.close)
            return OnALoop(portal, crib)

        yield made
