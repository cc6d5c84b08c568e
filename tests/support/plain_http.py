"""Requests with headers as they are given, blanks and repetitions included: what careful clients would not send."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; of a stream of events the first one's data alone."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: str

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        return next((v for k, v in self.headers if k.lower() == name), None)

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.text)


class PlainHttp:
    """One connection to `url`, opened again where the server closed it."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, bytes]] = (),
        query: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """One request and its answer."""
        c = self._connection
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query)
        c.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            c.putheader(name, value)
        if body is not None:
            c.putheader("Content-Length", str(len(body)))
        c.endheaders(body)
        answer = c.getresponse()
        found = tuple(answer.getheaders())
        if (answer.getheader("content-type") or "").startswith("text/event-stream"):
            text = _first_data(answer)
            c.close()
        else:
            text = answer.read().decode()
        return Reply(answer.status, found, text)


def _first_data(stream: http.client.HTTPResponse) -> str:
    while line := stream.readline().decode():
        if line.startswith("data:"):
            return line.removeprefix("data:").strip()
        if line.startswith(":"):  # a stream that has nothing to say yet
            break
    return "null"
