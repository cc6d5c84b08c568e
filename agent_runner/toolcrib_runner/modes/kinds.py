"""The modes and dialects by name, and which mode `auto` is for a view."""

from __future__ import annotations

from enum import StrEnum

AUTO_TOKENS = 4_000
"""Tokens of all schemas of a view, up to which showing everything costs less than searching."""


class Mode(StrEnum):
    """What a model is shown of its agent's tools."""

    STATIC = "static"
    """All of them, from the first request on."""
    DYNAMIC = "dynamic"
    """What it searches for: names and descriptions, then the schemas that it asks for."""
    CACHED = "cached"
    """As batched; tasks of the same words begin with the tools of the last time."""
    BATCHED = "batched"
    """What it searches for, several things at a time, with the schemas of the best hits."""
    HYBRID = "hybrid"
    """A few tools from the first request on, the others as batched."""
    AUTO = "auto"
    """Static for small views, else batched."""


class Dialect(StrEnum):
    """How a model asks for something."""

    NATIVE = "native"
    """By function calls."""
    TEXT = "text"
    """By lines such as `SEARCH: …`."""
    LENIENT = "lenient"
    """By function calls, or by such lines or JSON in the text."""


def settled(mode: Mode, schema_tokens: int) -> Mode:
    """The mode that a run is in: `auto` is settled by the tokens that all schemas of the view take."""
    if mode is not Mode.AUTO:
        return mode
    return Mode.STATIC if schema_tokens <= AUTO_TOKENS else Mode.BATCHED
