"""What a service says instead of an answer: a stable code and a sentence. It knows no HTTP.

Failure
├── Unauthenticated   nobody is asking, or somebody whose token is bad
└── CallError         how a call fails at its backend: `calls.errors`

`http.problems` gives each code its status and title.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Failure(Exception):
    """What was asked for is not done.

    Args:
        code: one of `http.problems.CODES`.
        detail: one or two sentences for a person; never a secret.
        retry_after: seconds after which another try makes sense.
        extra: further members of the answer.
    """

    code: str

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.code, self.detail, self.retry_after = code, detail, retry_after
        self.extra = dict(extra or {})
        super().__init__(detail)


class Unauthenticated(Failure):
    """An identity is needed. `problem` says what is wrong with the token; None: there is none."""

    def __init__(self, problem: str | None) -> None:
        self.problem = problem
        super().__init__("unauthenticated" if problem is None else "invalid_token", problem or "No token.")
