"""An agent's tools in a session: each call is written down before it is made, and none is made twice that must not be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolcrib.digest import sha256
from toolcrib_cli.session_store.records import Records
from toolcrib_cli.session_store.rows import STARTED, UNKNOWN, Call
from toolcrib_runner.agent import DynamicToolAgent
from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.errors import InvalidArguments, RunnerError, ToolError, UpstreamFailed
from toolcrib_runner.tasks import Toolbox
from toolcrib_runner.usage import UsageStats

_OK = "ok"
_ALREADY_CALLED = "already_called"
_WITHOUT_EFFECT = frozenset({
    "not_permitted", "tool_not_found", "ambiguous_name", "invalid_arguments", "no_backend", "credential_pending",
    "service_pending", "egress_refused", "limit_exceeded", "policy_stale", "unauthorized", "invalid_token",
    "token_unavailable", "tool_error", _ALREADY_CALLED,
})  # fmt: skip
"""Codes of calls that were refused, or of which the tool itself says that they failed. Any other may have had an effect."""


class RecordingTools(Toolbox):
    """The tools of one attempt at one turn; what `TaskLoop` works with.

    A call that an earlier attempt at this turn has made with the same arguments is refused unless the tool is
    idempotent: its answer is lost, and to make it again could have a second effect.
    """

    def __init__(
        self, agent: DynamicToolAgent, records: Records, session: str, holder: str, account: str, turn: int,
        attempt: int, *, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.name = agent.name
        self._agent = agent
        self._records = records
        self._session = session
        self._holder = holder
        self._account = account
        self._turn = turn
        self._attempt = attempt
        self._clock = clock
        self._number = 0
        self._made = {
            (call.tool, call.arguments_digest)
            for call in (records.calls(session, turn=turn) if attempt > 1 else ())
            if call.outcome not in _WITHOUT_EFFECT
        }

    @property
    def tools(self) -> Mapping[str, DiscoveredTool]:
        """The tools now."""
        return self._agent.tools

    def search(self, query: str, limit: int) -> Sequence[str]:
        """Listed names of tools that fit, best first."""
        return self._agent.search(query, limit)

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """Full input schemas of some."""
        return self._agent.input_schemas(names)

    def usage_stats(self) -> UsageStats:
        """The account's use of tools in all sessions of this store."""
        uses = self._records.uses(self._account)
        return UsageStats(
            agent=self.name,
            total_tools_available=len(self.tools),
            total_tool_calls=sum(uses.values()),
            usage_by_tool=uses,
            most_used_tool=max(uses, key=lambda tool: uses[tool]) if uses else None,
        )

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Any:
        """Write the call down, make it, and write down what came of it.

        Raises:
            RunnerError: as `DynamicToolAgent.call`; or `already_called`, see above.
            StoreError, TakenOver: it cannot be written down. A call that is not on record is not made.
        """
        try:
            digest = sha256([self._session, tool_name, dict(arguments)])
        except ValueError as error:  # such as 1e999, or half a surrogate pair
            raise InvalidArguments.of(tool_name, [f"the arguments cannot be sent as JSON: {error}"]) from None
        self._number += 1
        call = Call(self._turn, self._attempt, self._number, self.name, tool_name, digest, STARTED, 0.0)
        self._records.begin_call(self._session, self._holder, call)
        started, outcome, used = self._clock(), UNKNOWN, False
        try:
            if (tool_name, digest) in self._made and not self._agent.is_idempotent(tool_name):
                raise ToolError(
                    tool_name,
                    f"{tool_name} was called with these arguments before the session was interrupted; its result is not "
                    "known, and it does not say that it may be repeated",
                    code=_ALREADY_CALLED,
                )
            answer = self._agent.call(tool_name, arguments)
            outcome, used = _OK, True
            return answer
        except RunnerError as error:
            outcome, used = error.code, isinstance(error, UpstreamFailed)
            raise
        finally:
            self._records.end_call(
                self._session, self._holder, call, outcome, self._clock() - started,
                used_by=self._account if used else None,
            )  # fmt: skip
