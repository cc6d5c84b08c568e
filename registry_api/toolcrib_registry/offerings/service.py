"""Resources and prompts of MCP servers: listed, read, got and completed within the caller's view.

What reaches a server is decided, limited, recorded and counted as a call of `namespace/server:@resources` or `…:@prompts`
(DESIGN §3; issue 19 B).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from toolcrib import names
from toolcrib.authorizer import Action, decide
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls import lookup
from toolcrib_registry.calls import service as calls
from toolcrib_registry.calls.backends import breaking, nesting
from toolcrib_registry.calls.backends.authenticating import Caller
from toolcrib_registry.calls.backends.mcp.answers import question_of
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, InputRequired
from toolcrib_registry.calls.backends.routes import judged_in_turn
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import CallError, UpstreamProtocol
from toolcrib_registry.calls.lookup import Named
from toolcrib_registry.clock import whole_milliseconds
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.offerings import directory
from toolcrib_registry.offerings.directory import Listed, Meant
from toolcrib_registry.offerings.entries import SERVER_META, meta_of
from toolcrib_registry.offerings.lists import AT_HAND, LISTING, WHOLE, OfferedLists, Patience
from toolcrib_registry.offerings.updates import Updates
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.upstream.exchanges import Answered
from toolcrib_registry.upstream.lists import Kind
from toolcrib_registry.upstream.protocol import scrubbed
from toolcrib_registry.upstream.servers import Asking, Question, Server

PART = {Kind.RESOURCES: names.RESOURCES, Kind.TEMPLATES: names.RESOURCES, Kind.PROMPTS: names.PROMPTS}
_BYTES = 64 << 20
"""Of all that is remembered."""


class NotOffered(LookupError):
    """No visible server has it."""


Exchanging = Callable[[PublishedTool], Exchange]
"""What of the caller's client goes on, once it is decided whom it goes to."""
Read = Callable[[Mapping[str, Any]], dict[str, Any]]
"""The members of a result that are passed on; raises UpstreamProtocol for any other."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a server answered: members of a result and what it says besides, or what it asks for first."""

    fields: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None
    question: InputRequired | None = None


class Offerings:
    """Used from one event loop only.

    Args:
        parts: of the registry.
        lists: what servers list, and what asks them.
        updates: follows resources.
    """

    def __init__(self, parts: lookup.Parts, lists: OfferedLists, updates: Updates) -> None:
        self._parts, self._lists, self._requests, self._updates = parts, lists, lists.requests, updates
        self._made: OrderedDict[Hashable, tuple[directory.Offers, Listed]] = OrderedDict()

    @property
    def changes(self) -> int:
        """Grows with each change of a list that a server tells of."""
        return self._lists.changes

    def digest(self, caller_view: CallerView, kind: Kind) -> str:
        """Names what a caller's list of a kind is made of."""
        named = []
        for part in _parts(caller_view, PART[kind]):
            version = self._lists.version(names.server_of_part(part.tool_id), kind)
            named.append(f"{part.tool_id} {part.route_digest} {version}")
        return "\n".join(named)

    async def listed(
        self, asker: Asker, caller_view: CallerView, kind: Kind, patience: Patience = LISTING
    ) -> Listed:
        """What this caller is shown of a kind: each server has 5 seconds, and one that fails hides no other's.

        Raises:
            Failure: no server answers, and nothing is known of any.
        """
        identity = asker.identity
        assert identity is not None
        offered = _parts(caller_view, PART[kind])
        caller = Caller(identity, asker.token)
        asked = [self._lists.of(part, kind, caller, patience) for part in offered]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        offers, unknown, problem = {}, list[PublishedTool](), None
        for part, answer in zip(offered, answers, strict=True):
            if isinstance(answer, CallError):
                unknown.append(part)
                problem = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                offers[part.tool_id] = (part, answer)
        if problem is not None and not offers:
            raise problem
        home = identity.namespace
        # the lists themselves: each reading of a list is another object
        known_by = tuple((i, id(entries)) for i, (_, entries) in offers.items())
        key = (kind, home, known_by, tuple(part.tool_id for part in unknown))
        known = self._made.get(key)
        if known is None:
            make = partial(directory.listed, kind, offers, home, unknown)
            made = await judged_in_turn(make, _size(offers), identity, self._lists.large)
            # with what it is made of: no other list gets the identity of one that is remembered
            known = self._made[key] = offers, made
            while len(self._made) > 1 and sum(one.weight for _, one in self._made.values()) > _BYTES:
                self._made.popitem(last=False)
        return known[1]

    async def read(
        self, asker: Asker, uri: str, request_id: str, exchange: Exchanging
    ) -> tuple[Named, Result]:
        """The contents of a resource.

        Raises:
            NotOffered: no visible server has it. Ambiguous: several do.
            Failure: it was refused or failed; the code says how.
        """
        meant = await self._resource(asker, uri)
        params = {"uri": meant.key}
        return await self._asked(asker, meant, "resources/read", params, request_id, exchange, _contents)

    async def get(
        self, asker: Asker, name: str, arguments: Mapping[str, str], request_id: str, exchange: Exchanging
    ) -> tuple[Named, Result]:
        """The messages of a prompt.

        Raises:
            NotOffered: no visible server has it.
            Failure: it was refused or failed; the code says how.
        """
        meant = await self._prompt(asker, name)
        params: dict[str, Any] = {"name": meant.key}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self._asked(asker, meant, "prompts/get", params, request_id, exchange, _messages)

    async def complete(
        self,
        asker: Asker,
        ref: Mapping[str, Any],
        argument: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        request_id: str,
    ) -> tuple[Named, Result]:
        """Values of an argument of a prompt, or of a template.

        Raises:
            NotOffered: no visible server has it. Ambiguous: several do.
            Failure: it was refused or failed; the code says how.
        """
        by_uri = ref.get("type") == "ref/resource"
        if by_uri:
            meant = await self._template(asker, str(ref.get("uri")))
            asked: dict[str, Any] = {"type": "ref/resource", "uri": meant.key}
        else:
            meant = await self._prompt(asker, str(ref.get("name")))
            asked = {"type": "ref/prompt", "name": meant.key}
        params: dict[str, Any] = {"ref": asked, "argument": dict(argument)}
        if context:
            params["context"] = dict(context)
        return await self._asked(
            asker, meant, "completion/complete", params, request_id, lambda _: NO_EXCHANGE, _completion
        )

    async def follow(
        self, asker: Asker, uri: str, request_id: str, told: Callable[[], None]
    ) -> tuple[str, Callable[[], None]]:
        """Have `told` called after each change of a resource: the id of what stands for it, and what ends that.

        Raises:
            NotOffered: no visible server has it. Ambiguous: several do. NotTold: nobody tells of its changes.
            Failure: it was refused or failed; the code says how.
        """
        meant = await self._resource(asker, uri)
        named, identity = await self._named(asker, meant.part), asker.identity
        assert identity is not None

        async def ask(named: Named) -> Callable[[], None]:
            caller = Caller(identity, asker.token)
            return await breaking.within(
                self._lists.breakers,
                named.tool,
                lambda: self._updates.follow(named.tool, meant.key, caller, told),
            )

        params = {"uri": meant.key}
        _, end = await calls.governed(self._parts, identity, named, ask, lambda _: "ok", params)
        return named.tool.tool_id, end

    async def _resource(self, asker: Asker, uri: str) -> Meant:
        caller_view = await self._parts.state.caller_view(asker.identity)
        parts = {part.tool_id: part for part in _parts(caller_view, names.RESOURCES)}
        home = None if asker.identity is None else asker.identity.namespace

        async def look(patience: Patience) -> Meant | None:
            resources = await self.listed(asker, caller_view, Kind.RESOURCES, patience)
            if (meant := directory.meant_by_uri(uri, parts, resources)) is not None:
                return meant
            templates = await self.listed(asker, caller_view, Kind.TEMPLATES, patience)
            return directory.meant_by_template(uri, templates, home, resources.unknown)

        if directory.names_server(uri):
            return self._offered(directory.meant_by_own(uri, parts), caller_view, names.RESOURCES)
        return self._offered(await _meant(look), caller_view, names.RESOURCES)

    async def _template(self, asker: Asker, template: str) -> Meant:
        """The resource or template that is listed under a text."""
        caller_view = await self._parts.state.caller_view(asker.identity)

        async def look(patience: Patience) -> Meant | None:
            for kind in (Kind.TEMPLATES, Kind.RESOURCES):
                listed = await self.listed(asker, caller_view, kind, patience)
                if (meant := listed.of(template)) is not None:
                    return meant
            return None

        if directory.names_server(template):
            parts = {part.tool_id: part for part in _parts(caller_view, names.RESOURCES)}
            return self._offered(directory.meant_by_own(template, parts), caller_view, names.RESOURCES)
        return self._offered(await _meant(look), caller_view, names.RESOURCES)

    async def _prompt(self, asker: Asker, name: str) -> Meant:
        caller_view = await self._parts.state.caller_view(asker.identity)

        async def look(patience: Patience) -> Meant | None:
            return (await self.listed(asker, caller_view, Kind.PROMPTS, patience)).of(name)

        return self._offered(await _meant(look), caller_view, names.PROMPTS)

    def _offered(self, meant: Meant | None, caller_view: CallerView, name: str) -> Meant:
        """What is meant; that nothing is goes into the log, which never has the URI."""
        if meant is None:
            self._parts.refusals.add(Action.CALL, caller_view, name)
            raise NotOffered
        return meant

    async def _asked(
        self,
        asker: Asker,
        meant: Meant,
        method: str,
        params: dict[str, Any],
        request_id: str,
        exchange: Exchanging,
        read: Read,
    ) -> tuple[Named, Result]:
        named, identity = await self._named(asker, meant.part), asker.identity
        assert identity is not None

        async def ask(named: Named) -> Result:
            carried = exchange(named.tool)
            more: dict[str, Any] = {}
            if carried.responses is not None:
                more["inputResponses"] = carried.responses
            if carried.state is not None:
                more["requestState"] = carried.state
            question = Question(method, {**params, **more}, carried.meta, carried.capabilities)
            return await breaking.within(
                self._lists.breakers,
                named.tool,
                lambda: self._answered(named.tool, question, request_id, asker, read),
            )

        return await calls.governed(self._parts, identity, named, ask, _outcome, params)

    async def _named(self, asker: Asker, part: PublishedTool) -> Named:
        """Decided once more: the lists may have taken seconds."""
        parts = self._parts
        caller_view = await parts.state.caller_view(asker.identity)
        now, at = caller_view.view.parts.get(part.tool_id), whole_milliseconds(parts.clock.now())
        decision = decide(caller_view.identity, now, Action.CALL, caller_view.snapshot.policy, at)
        if now is None or not decision.allowed:
            parts.refusals.add(Action.CALL, caller_view, part.tool_id)
            raise NotOffered
        parts.metrics.decided(Action.CALL.value, decision, caller_view.identity)
        return Named(now, now.tool_id, caller_view, decision, at)

    async def _answered(
        self, part: PublishedTool, question: Question, request_id: str, asker: Asker, read: Read
    ) -> Result:
        assert asker.identity is not None
        hidden: list[str] = []

        async def work(server: Server, asking: Asking) -> Answered:
            return await self._requests.client.ask(server, asking, question)

        caller = Caller(asker.identity, asker.token)
        answered = await self._requests.made(part, request_id, caller, hidden, work, again=True)
        depth, server = self._requests.limits.answer_depth, names.server_of_part(part.tool_id)
        judge = partial(_judged, answered, read, depth, tuple(hidden), server)
        return await judged_in_turn(judge, len(answered.text), asker.identity, self._lists.large)


async def _meant(look: Callable[[Patience], Awaitable[Meant | None]]) -> Meant | None:
    """Resolve a key by the lists at hand, or else by those that come in time."""
    with contextlib.suppress(CallError, directory.Ambiguous):
        if (meant := await look(AT_HAND)) is not None:
            return meant
    return await look(WHOLE)


def _parts(caller_view: CallerView, name: str) -> list[PublishedTool]:
    return [part for part in caller_view.view.parts.values() if part.name == name]


def _outcome(result: Result) -> str:
    return "ok" if result.question is None else calls.INPUT_REQUIRED


def _size(offers: directory.Offers) -> int:
    return sum(len(entry.rest) for _, found in offers.values() for entry in found)


def _judged(answered: Answered, read: Read, depth: int, hidden: tuple[str, ...], server: str) -> Result:
    """Return a server's answer in the form of the requested result, with the server's name.

    Raises:
        UpstreamProtocol: it is none, or must not be passed on.
    """
    fields = answered.fields
    nesting.check(fields, depth)
    if Secrets.of(hidden).repeated_in(answered.text):
        raise UpstreamProtocol("the server's answer repeats its credential and is withheld")
    if fields.get("resultType", "complete") == "input_required":
        return Result({}, question=question_of(fields))
    return Result(scrubbed(read(fields)), {**meta_of(fields), SERVER_META: server})


def _contents(fields: Mapping[str, Any]) -> dict[str, Any]:
    contents = _objects(fields.get("contents"), "contents")
    for each in contents:
        if type(each.get("uri")) is not str or not (
            type(each.get("text")) is str or type(each.get("blob")) is str
        ):
            raise UpstreamProtocol("the server's answer is not the contents of a resource")
    return {"contents": contents}


def _messages(fields: Mapping[str, Any]) -> dict[str, Any]:
    messages = _objects(fields.get("messages"), "messages")
    for each in messages:
        if each.get("role") not in ("user", "assistant") or type(each.get("content")) is not dict:
            raise UpstreamProtocol("the server's answer is not a prompt's")
    shown: dict[str, Any] = {"messages": messages}
    if type(fields.get("description")) is str:
        shown["description"] = fields["description"]
    return shown


_MOST_VALUES = 100
"""MCP (2025-11-25, Completion): at most this many items."""


def _completion(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = fields.get("completion")
    values = found.get("values") if type(found) is dict else None
    if type(found) is not dict or type(values) is not list or not all(type(v) is str for v in values):
        raise UpstreamProtocol("the server's answer is no completion")
    shown: dict[str, Any] = {"values": values[:_MOST_VALUES]}
    shown |= {k: found[k] for k, kind in (("total", int), ("hasMore", bool)) if type(found.get(k)) is kind}
    return {"completion": shown}


def _objects(value: Any, what: str) -> Sequence[dict[str, Any]]:
    if type(value) is not list or not all(type(each) is dict for each in value):
        raise UpstreamProtocol(f"the server's answer has no {what}")
    return value
