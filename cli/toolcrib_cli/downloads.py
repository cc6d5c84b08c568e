"""A document of somebody else, from an address: bounded in size and time, without credentials."""

from __future__ import annotations

import re
import time
from urllib.parse import urlsplit

import httpx2

from toolcrib import __version__
from toolcrib.text import escape, truncate
from toolcrib_cli.errors import CliError, Exit

_SECONDS = 120.0
_REDIRECTS = 5
_FILE = "download the document yourself and give the file"


def downloaded(url: str, most: int) -> bytes:
    """What is at `url`, decompressed.

    Args:
        url: http or https, without a user.
        most: bytes that it may have.

    Raises:
        CliError: it cannot be had, is larger, or takes longer than two minutes.
    """
    shown = escape(truncate(re.split("[?#]", url)[0], 200))
    try:
        parts = urlsplit(url)
        user, host = parts.username, parts.hostname
    except ValueError:
        user = host = None
    if user is not None:
        raise CliError(
            "the URL holds a user or a password; download the document and give the file", code=Exit.USAGE
        )
    if host is None:
        raise CliError(f"{shown} is not an http or https URL", hint=_FILE, code=Exit.USAGE)
    until = time.monotonic() + _SECONDS
    headers = {
        "User-Agent": f"toolcrib-cli/{__version__}",
        "Accept": "application/json, application/yaml, */*;q=0.5",
    }
    found = bytearray()
    try:
        with (
            httpx2.Client(
                follow_redirects=True,
                max_redirects=_REDIRECTS,
                timeout=30.0,
                headers=headers,
                event_hooks={"response": [stays_encrypted]},
            ) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                raise CliError(f"{shown} answers {response.status_code}", hint=_FILE, code=Exit.UNREACHABLE)
            for part in response.iter_bytes(65_536):
                found += part
                if len(found) > most:
                    raise CliError(f"{shown} is larger than {most >> 20} MiB", hint=_FILE, code=Exit.USAGE)
                if time.monotonic() > until:
                    raise CliError(
                        f"{shown} takes longer than {_SECONDS:.0f} s", hint=_FILE, code=Exit.UNREACHABLE
                    )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = escape(truncate(str(error) or type(error).__name__, 200))
        raise CliError(f"cannot fetch {shown}: {why}", hint=_FILE, code=Exit.UNREACHABLE) from error
    return bytes(found)


def stays_encrypted(response: httpx2.Response) -> None:
    """Refuse to be sent from https to http. Raises httpx2.UnsupportedProtocol."""
    if not response.has_redirect_location or response.url.scheme != "https":
        return
    if response.url.join(response.headers["location"]).scheme != "https":
        raise httpx2.UnsupportedProtocol("it redirects from https to http")
