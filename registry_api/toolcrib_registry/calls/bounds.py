"""Bounds of a call, both ways."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What a call may carry.

    Attributes:
        argument_bytes: size of the serialised arguments.
        argument_depth: nesting of the arguments, the object itself counted.
        answer_bytes: size of the backend's answer, decoded.
        answer_depth: nesting of a JSON answer.
        url_bytes: length of path and query.
        error_bytes: how much of a refusing backend's JSON is shown to the caller.
        timeout: longest deadline, whatever the tool asks for, in seconds.
    """

    argument_bytes: int = 1 << 20
    argument_depth: int = 32
    answer_bytes: int = 4 << 20
    answer_depth: int = 100
    url_bytes: int = 8_000
    error_bytes: int = 4_096
    timeout: float = 300.0
