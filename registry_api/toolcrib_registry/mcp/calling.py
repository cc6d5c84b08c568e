"""Calls of governed tools, and how their failures are told.

What a model can do something about is a result that says so; a tool that the caller may not call is unknown, as one that
does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolcrib.resources.tools import CONFIRM
from toolcrib.text import escape, truncate
from toolcrib_registry.calls import service, step_up
from toolcrib_registry.calls.backends.port import Exchange, InputRequired, ToolAnswer
from toolcrib_registry.calls.confirmations import NEEDED
from toolcrib_registry.calls.errors import CapabilityMissing, InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.lookup import Named
from toolcrib_registry.calls.step_up import Find
from toolcrib_registry.failures import Failure
from toolcrib_registry.mcp import results, tool_list
from toolcrib_registry.mcp.outcomes import Called, Outcome, Plain
from toolcrib_registry.mcp.protocol import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RpcError,
    is_stateless,
)
from toolcrib_registry.mcp.request_state import SealedStates, StateRefused, StateTooLarge, about
from toolcrib_registry.mcp.requests import Client, Parts, ToolCall

MOST_ERRORS = 5
FALLBACK_META = "toolcrib.dev/fallback"
"""Key of a result's `_meta`: the id of the tool that answered in the place of the one that was called."""
_SHOWN = 500
_NEEDED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The capability that a client needs for what it is asked."""
_UNKNOWN = ("not_permitted", "tool_not_found")
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Calls:
    """Makes calls for clients of MCP.

    Args:
        parts: of the registry.
        states: seals what tools want back.
    """

    def __init__(self, parts: Parts, states: SealedStates) -> None:
        self._parts, self.states = parts, states

    async def call(
        self,
        client: Client,
        name: str,
        arguments: dict[str, Any],
        asked: ToolCall,
        find: Find | None = None,
    ) -> Outcome:
        """Call the tool that `name` means: decided, limited, recorded and counted as every call.

        Args:
            client: who asks.
            name: a listed name or an id.
            arguments: for the tool.
            asked: the request that led here.
            find: what the name means, where it is neither.

        Raises:
            RpcError: there is no such tool for the caller, or its client cannot answer what it asks.
            InsufficientScope: a scope is all that the token lacks (`discovery.step_up`).
        """

        def exchange(named: Named) -> Exchange:
            state = asked.state
            if state is not None:
                state = self.states.opened(state, about(client.identity, named.tool, arguments))
            responses = asked.responses
            if responses is not None:
                # what a client says of a confirmation decides nothing, and is no tool's to read
                responses = {k: v for k, v in responses.items() if k != CONFIRM} or None
            return Exchange(asked.capabilities, asked.meta, responses, state, client.progress, client.logs)

        try:
            named, answer = await service.call(
                self._parts, client.asker, name, arguments, client.request_id, exchange
            )
        except StateRefused as refused:
            raise RpcError(INVALID_PARAMS, f"{refused.detail}.", refused=True) from refused
        except Failure as failure:
            if failure.code == "not_permitted" and self._parts.settings.discovery.step_up:
                await step_up.check(self._parts, client.asker, find or step_up.named(name))
            if failure.code == NEEDED and is_stateless(client.version) and _may_ask(asked):
                return Plain(results.of_question(_person(failure), None), (name,))
            if isinstance(failure, CapabilityMissing) and is_stateless(client.version):
                raise _lacking(failure.required) from failure
            # that a grant has ended is told to whom it has ended
            told = () if failure.code == "revoked" else tuple(failure.extra.get("tool_ids") or (name,))
            return Plain(failed(client.version, failure, arguments), told)
        if answer.input_required is None:
            return Called(await self._answered(client, named, answer), named)
        return Called(self.question(client, named, arguments, asked, answer.input_required), named)

    async def _answered(self, client: Client, named: Named, answer: ToolAnswer) -> bytes:
        """What a tool answered. Clients refuse an answer that its output schema does not allow, and their models learn nothing of a
        call that was made: so it is told as an error, with what the tool said."""
        tool = named.asked or named.tool
        if named.asked is not None:
            answer = replace(answer, meta={**(answer.meta or {}), FALLBACK_META: named.tool.tool_id})
        if answer.is_error or not tool_list.shows_output(tool, stateless=is_stateless(client.version)):
            return results.of_tool(client.version, answer)
        account = client.asker.account
        mistakes = await self._parts.arguments.mistakes_of_output(tool, answer.structured, account)
        if not mistakes:
            return results.of_tool(client.version, answer)
        lines = [f"- {mistake['pointer'] or '/'}: {mistake['message']}" for mistake in mistakes[:MOST_ERRORS]]
        text = "\n".join(("The tool's result does not match its output schema.", *lines))
        return results.of_misfit(client.version, UpstreamProtocol.code, text, answer)

    def question(
        self,
        client: Client,
        named: Named,
        arguments: dict[str, Any],
        asked: ToolCall,
        question: InputRequired,
    ) -> bytes:
        """What a tool asks, for a client that can answer; told as a failure where its revision cannot carry it."""
        if not is_stateless(client.version):
            lines = [f"- {each.get('method')}: {_message(each)}" for each in question.requests.values()]
            text = "The tool asks for input, which this revision of MCP cannot carry. Use 2026-07-28."
            return results.of_failure(client.version, service.INPUT_REQUIRED, "\n".join((text, *lines)))
        if missing := _missing(question, asked.capabilities):
            raise _lacking(missing)
        state = question.state
        if state is not None:
            try:
                state = self.states.sealed(state, about(client.identity, named.tool, arguments))
            except StateTooLarge:
                text = "The tool asks for input with more state than can be carried back."
                return results.of_failure(client.version, UpstreamProtocol.code, text)
        return results.of_question(question, state)


def _may_ask(asked: ToolCall) -> bool:
    """Whether the client can tell its user of a confirmation, and the user has not declined to see to it."""
    said = (asked.responses or {}).get(CONFIRM)
    declined = isinstance(said, Mapping) and said.get("action") != "accept"
    return "elicitation" in asked.capabilities and not declined


def _person(failure: Failure) -> InputRequired:
    """A confirmation as a question to the client's user: who may confirm is another person, at a command line."""
    asked = {"message": failure.detail, "requestedSchema": {"type": "object", "properties": {}}}
    return InputRequired({CONFIRM: {"method": "elicitation/create", "params": asked}})


def _lacking(missing: Mapping[str, Any]) -> RpcError:
    message = f"The tool needs {', '.join(missing)}, which the client does not offer."
    data = {"requiredCapabilities": missing}
    return RpcError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, data, refused=True)


def _missing(question: InputRequired, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities that a client needs to answer, and did not declare."""
    missing: dict[str, Any] = {}
    for each in question.requests.values():
        name, params = _NEEDED.get(str(each.get("method")), "experimental"), each.get("params")
        by_url = name == "elicitation" and isinstance(params, Mapping) and params.get("mode") == "url"
        declared = capabilities.get(name)
        if not isinstance(declared, Mapping) or (by_url and "url" not in declared):
            missing[name] = {"url": {}} if by_url else {}
    return missing


def _message(question: Mapping[str, Any]) -> str:
    params = question.get("params")
    return truncate(escape(str(params.get("message", ""))), _SHOWN) if isinstance(params, Mapping) else ""


def failed(version: str, failure: Failure, arguments: Mapping[str, Any]) -> bytes:
    """The result of a call that failed.

    Raises:
        RpcError: there is no such tool for the caller.
    """
    if failure.code in _UNKNOWN:
        raise unknown_tool()
    return results.of_failure(version, failure.code, told(failure, arguments), failure.retry_after)


def unknown_tool() -> RpcError:
    """The same for denied and absent tools. It does not repeat the name, so that both are equal to the byte."""
    return RpcError(INVALID_PARAMS, "Unknown tool")


def told(failure: Failure, arguments: Mapping[str, Any]) -> str:
    """How a failure is told, with what a model can do about it."""
    if isinstance(failure, InvalidArguments):
        errors = failure.extra.get("errors") or ()
        lines = [_mistake(error, arguments) for error in errors[:MOST_ERRORS]]
        return "\n".join((f"Invalid arguments: {failure.detail}.", *lines))
    text = f"{failure.detail.rstrip('.')}."
    if ids := failure.extra.get("tool_ids"):
        text = f"{text} tool_ids: {', '.join(ids)}"
    if (upstream := failure.extra.get("upstream")) is not None:
        text = f"{text}\n{results.shown(upstream)}"
    return text


def _mistake(error: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """Where a value does not fit, what is expected, and of which type it is. The value itself may be a secret."""
    pointer = error["pointer"]
    return f"- {pointer or '/'}: {error['message']} (got {_kind(arguments, pointer)})"


def _kind(value: Any, pointer: str) -> str:
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if type(value) is dict and key in value:
            value = value[key]
        elif type(value) is list and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return "something else"
    return kind_of(value)


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    return "null" if value is None else _KINDS.get(type(value), "something else")
