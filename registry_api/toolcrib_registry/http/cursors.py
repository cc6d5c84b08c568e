"""Cursors: where a list goes on, and of which content."""

from __future__ import annotations

import base64
import binascii

import orjson

from toolcrib_registry.http.problems import ProblemError


def encode(revision: str, after: str) -> str:
    """An opaque text for both."""
    return base64.urlsafe_b64encode(orjson.dumps([revision, after])).decode().rstrip("=")


def decode(cursor: str, revision: str) -> str:
    """What to go on after.

    Raises:
        ProblemError: it is no cursor, or one of another content.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        held, after = orjson.loads(raw)
    except (ValueError, TypeError, binascii.Error) as error:
        raise ProblemError("invalid_cursor", "Invalid cursor. Start again without `cursor`.") from error
    if not isinstance(held, str) or not isinstance(after, str):
        raise ProblemError("invalid_cursor", "Invalid cursor. Start again without `cursor`.")
    if held != revision:
        raise ProblemError("cursor_stale", "The list has changed. Start again without `cursor`.")
    return after
