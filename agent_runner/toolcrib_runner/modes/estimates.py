"""Tokens, estimated without a tokenizer: UTF-8 bytes / 4, corrected by what the endpoint counted. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from toolcrib_runner.ports import Reply

BYTES_A_TOKEN = 4


def size(*parts: Any) -> int:
    """UTF-8 bytes of the parts as compact JSON."""
    return sum(
        len(json.dumps(p, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
        for p in parts
    )


class Estimator:
    """Tokens of what would be sent. Not thread-safe: one loop owns it."""

    def __init__(self) -> None:
        self._estimated = 0
        self._counted = 0

    def tokens(self, size: int) -> int:
        """Tokens of so many bytes, rounded up."""
        plain = -(-size // BYTES_A_TOKEN)
        return -(-plain * self._counted // self._estimated) if self._estimated else plain

    def counted(self, size: int, tokens: int) -> None:
        """Learn that so many bytes were counted as so many prompt tokens; 0 tokens: the endpoint does not count."""
        if tokens > 0 and size > 0:
            self._estimated += -(-size // BYTES_A_TOKEN)
            self._counted += tokens

    def complete(self, sent: int, reply: Reply) -> Reply:
        """The reply to so many bytes, with its tokens estimated where the endpoint counted none."""
        said = size(reply.text, *((call.name, call.arguments) for call in reply.calls))
        return replace(
            reply,
            prompt_tokens=reply.prompt_tokens or self.tokens(sent),
            completion_tokens=reply.completion_tokens or self.tokens(said),
        )
