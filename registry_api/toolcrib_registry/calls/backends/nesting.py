"""How deep an answer may be nested."""

from __future__ import annotations

from typing import Any

from toolcrib_registry.calls.errors import UpstreamProtocol


def check(value: Any, limit: int, text: bytes | None = None) -> None:
    """Accept a JSON value of at most `limit` levels. `text` is what it stands in, where that is there.

    Raises:
        UpstreamProtocol: it has more.
    """
    # so few brackets open no more levels than are allowed
    if text is not None and text.count(b"{") + text.count(b"[") <= limit:
        return
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict | list):
            if depth > limit:
                raise UpstreamProtocol(f"the backend's response is nested deeper than {limit} levels")
            stack.extend((child, depth + 1) for child in (node.values() if isinstance(node, dict) else node))
