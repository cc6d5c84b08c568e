"""The proof that the listener at a local mode's address is that local mode.

It is asked for on each connection before a token goes over it: the port is free for any program while `up` does not run, and
a token of the folder's key outlives a run. The proof is an HMAC over a number used once and the address, with the key that
each run leaves in the folder (0700). Another listener cannot have it, nor get it from a local mode at another address.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import read_running

PATH = "/local/proof"
NONCE = re.compile(r"[0-9a-f]{32}")
_SECONDS = 5.0
_MOST_BYTES = 4_096
_HOSTS = ("127.0.0.1", "localhost")
"""Names of the address. Nothing of the local mode listens on `[::1]`."""


class NotTheLocalMode(ConnectionError):
    """Another program listens there, or may by now."""


class Stream(Protocol):
    """A connection that nothing was sent over yet."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes; none at the end."""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""

    def get_extra_info(self, info: str) -> Any:
        """A fact of the connection: `server_addr` is the address and port of the listener."""

    def close(self) -> None:
        """Close it."""


class AsyncStream(Protocol):
    """The same in an event loop."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Some bytes; none at the end."""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Send all of it."""

    def get_extra_info(self, info: str) -> Any:
        """A fact of the connection: `server_addr` is the address and port of the listener."""

    async def aclose(self) -> None:
        """Close it."""


def proof(key: str, url: str, nonce: str) -> str:
    """The answer of the local mode whose run has this key, and which listens at `url`."""
    return hmac.new(key.encode(), f"toolcrib local mode\n{url}\n{nonce}".encode(), hashlib.sha256).hexdigest()


class LocalRegistry:
    """The registry of the local mode that runs in a data folder, now or later; `url` is another way to write its address."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self._folder, self._url = folder, url

    def url(self) -> str:
        """Its address.

        Raises:
            CliError: no local mode runs there, or it runs at another address than was specified.
        """
        own = _state(self._folder)[0]
        if not self._url:
            return own
        try:
            given = urlsplit(self._url)
            same = given.scheme == "http" and given.hostname in _HOSTS and given.port == urlsplit(own).port
        except ValueError:
            same = False
        if not same:
            raise CliError(
                f"{self._url} is not the local mode of {self._folder}, which runs at {own}",
                hint="tokens of --as are for the local mode: omit --url, --registry and TOOLCRIB_URL, or use a token file",
                code=Exit.USAGE,
            )
        return own + given.path.rstrip("/")

    def greet(self, stream: Stream) -> None:
        """Let the listener prove that it is the local mode; close the connection otherwise.

        Raises:
            NotTheLocalMode: it did not, or no local mode runs.
        """
        try:
            question = _Question(self._folder, stream)
            stream.write(question.request, timeout=question.left())
            while not question.take(stream.read(_MOST_BYTES, timeout=question.left())):
                pass
        except BaseException:
            stream.close()
            raise

    async def greet_in_loop(self, stream: AsyncStream) -> None:
        """The same in an event loop."""
        try:
            question = _Question(self._folder, stream)
            await stream.write(question.request, timeout=question.left())
            while not question.take(await stream.read(_MOST_BYTES, timeout=question.left())):
                pass
        except BaseException:
            await stream.aclose()
            raise


class _Question:
    """One challenge, and how its answer arrives."""

    def __init__(self, folder: Path, stream: Stream | AsyncStream) -> None:
        try:
            self._url, key = _state(folder)
        except CliError as error:
            raise NotTheLocalMode(error.message) from None
        # Another run may have begun at another address since this one was looked up: a program at the former one could
        # have the new run answer for it.
        peer = stream.get_extra_info("server_addr")
        if not peer or f"http://{peer[0]}:{peer[1]}" != self._url:
            raise NotTheLocalMode(
                f"the local mode of {folder} runs at {self._url} now: no token was sent elsewhere"
            )
        nonce = secrets.token_hex(16)
        self._proof = proof(key, self._url, nonce)
        self._error = NotTheLocalMode(
            f"another program than the local mode of {folder} listens at {self._url}: no token was sent to it"
        )
        self._answer = b""
        self._ends = time.monotonic() + _SECONDS
        host = self._url.partition("://")[2]
        self.request = f"GET {PATH}?nonce={nonce} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    def left(self) -> float:
        """Seconds for the rest of the answer."""
        if (left := self._ends - time.monotonic()) <= 0:
            raise self._error
        return left

    def take(self, part: bytes) -> bool:
        """Add a part of the answer; True if it is complete, and right."""
        self._answer += part
        if not part or len(self._answer) > _MOST_BYTES:
            raise self._error
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d{1,4})\r\n", head.lower() + b"\r\n")
        if not end or (length is not None and len(body) < int(length[1])):
            return False
        try:
            answer = json.loads(body)["proof"] if length is not None else ""
            right = hmac.compare_digest(answer.encode(), self._proof.encode())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            right = False
        if not right:
            raise self._error
        return True


def _state(folder: Path) -> tuple[str, str]:
    """Address and key of the run."""
    state = read_running(folder)
    if state is None or not isinstance(key := state.get("key"), str):
        raise CliError(
            f"no local mode runs in {folder}",
            hint="start one with `toolcrib up`, or specify --url and --token-file",
            code=Exit.UNREACHABLE,
        )
    return str(state["url"]), key
