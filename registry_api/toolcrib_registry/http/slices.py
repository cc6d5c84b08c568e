"""Large bodies go to the server in slices: it waits for the reader between two of them."""

from __future__ import annotations

from starlette.types import Message, Send

SLICE = 64 * 1024
"""Bytes handed over at one time."""


async def send_all_but_last(send: Send, start: Message, body: bytes) -> bytes:
    """Send `start` and `body` up to its last slice, which is returned: the answer ends with it."""
    last = max(0, len(body) - 1) // SLICE * SLICE
    await send(start)
    for at in range(0, last, SLICE):
        await send({"type": "http.response.body", "body": body[at : at + SLICE], "more_body": True})
    return body[last:] if last else body
