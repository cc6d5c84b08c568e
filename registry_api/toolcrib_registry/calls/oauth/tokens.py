"""Access tokens by grant: fetched once for all callers that wait, kept until a minute before they end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from toolcrib.identity import Issuer
from toolcrib.resources import credential_hosts
from toolcrib.text import escape, truncate
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import BackendAuthFailed, BackendUnavailable, Refused
from toolcrib_registry.calls.oauth import answers, discovery, grants
from toolcrib_registry.calls.oauth.grants import Grant
from toolcrib_registry.outbound.errors import EgressRefused, OutboundError, TimedOut, Unreachable
from toolcrib_registry.outbound.guard import (
    EgressPolicy,
    PolicySource,
    Target,
    check_url,
    service_target,
    trusted,
)
from toolcrib_registry.outbound.messages import OutboundRequest, OutboundResponse, Sender

log = logging.getLogger(__name__)

FETCH_SECONDS = 10.0
"""For a token, discovery included."""
EARLY = 60.0
"""Seconds before its end from which on a token is not used; half of its life, if that is less."""
AGAIN = 30.0
"""Seconds in which a refused token is replaced once: a backend that refuses every token must not cause a fetch for each call."""
_REFUSED_SECONDS, _FAILED_SECONDS = 10.0, 1.0
"""For how long a failure is told without asking again: of an authorization server that answered, and of one that did not."""
_COUNTED_SECONDS = 1.0
"""Failures of callers that wait for one request within this time are one failure for the circuit breaker."""
_MOST, _SHOWN = 4_096, 300

_T = TypeVar("_T")


class TokenOutcome(StrEnum):
    """What became of a request for a token."""

    GRANTED = "granted"
    REFUSED = "refused"
    DOWN = "down"
    NOT_ALLOWED = "not_allowed"


@dataclass(frozen=True, slots=True)
class _Token:
    value: str = field(repr=False)
    until: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is told without asking again.

    Attributes:
        until: until then.
        error: why there is no token.
        policy: the guard's policy that led to it; None: it does not depend on one.
    """

    until: float
    error: BackendAuthFailed | Refused | EgressRefused
    policy: EgressPolicy | None = None


@dataclass(slots=True)
class _Fetch:
    """One request for a token, and when a caller's failure to get it was counted last."""

    task: asyncio.Task[str]
    counted: float = -math.inf


class Tokens:
    """Used from one event loop only.

    Args:
        outbound: the guarded client.
        policy: the same policy that it enforces.
        credentials: what the operator pushed: a token does not outlive the Secret that it was obtained with.
        breakers: of authorization servers, each within one namespace.
        clock: monotonic seconds.
        now: seconds since the epoch.
        observe: told what became of each request.
    """

    def __init__(
        self,
        outbound: Sender,
        policy: PolicySource,
        credentials: CredentialStore,
        *,
        breakers: Breakers | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        observe: Callable[[TokenOutcome], None] = lambda outcome: None,
    ) -> None:
        self._observe = observe
        self._now = now
        self._outbound, self._policy, self._credentials = outbound, policy, credentials
        self._breakers = Breakers(clock=clock) if breakers is None else breakers
        self._clock = clock
        self._held: OrderedDict[Grant, _Token] = OrderedDict()
        self._failed: OrderedDict[Grant, _Failure] = OrderedDict()
        self._dropped: OrderedDict[Grant, float] = OrderedDict()
        self._running: dict[Grant, _Fetch] = {}
        credentials.subscribe(self._forget)

    def __repr__(self) -> str:
        return f"Tokens({len(self._held)} held)"

    async def close(self) -> None:
        """End what is being fetched."""
        running = [fetch.task for fetch in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def held(self, grant: Grant) -> str | None:
        """The token that is used now, if there is one."""
        token = self._held.get(grant)
        return None if token is None or token.until <= self._clock() else token.value

    async def token(self, grant: Grant, seconds: float, caller_token: str = "") -> str:
        """A token of this grant, within `seconds`; `caller_token` is exchanged for it, if the grant is an exchange.

        Raises:
            BackendAuthFailed: there is none.
            BackendUnavailable: the authorization server failed too often.
            Refused: the client's secret must not go to the token endpoint.
            EgressRefused: the guard says no.
        """
        if (value := self.held(grant)) is not None:
            self._held.move_to_end(grant)
            return value
        self._raise_known(grant)
        key = f"authorization server {grant.endpoint} of {grant.namespace}"
        try:
            tried = self._breakers.enter(key)
        except BackendUnavailable as error:
            raise BackendUnavailable(
                "the authorization server of the tool's backend failed too often, so its circuit breaker is open: retry in"
                f" {error.retry_after} s",
                retry_after=error.retry_after,
            ) from None
        answered: bool | None = None
        fetch = self._fetch_of(grant, caller_token)
        try:
            value = await _joined(fetch.task, seconds)
            answered = True
        except BackendAuthFailed as failed:
            answered = True if not failed.down else False if tried or self._counts(fetch) else None
            raise
        finally:
            self._breakers.leave(key, answered, tried=tried)
        return value

    def drop(self, grant: Grant, value: str) -> bool:
        """The backend refused this token: forget it. Whether another one should be tried."""
        token, now = self._held.get(grant), self._clock()
        if token is None or token.value != value:
            return True
        if now - self._dropped.get(grant, now - AGAIN) < AGAIN:
            return False
        del self._held[grant]
        _put(self._dropped, grant, now)
        return True

    def _raise_known(self, grant: Grant) -> None:
        """Raise what came of the last request, if that still holds."""
        known = self._failed.get(grant)
        if known is None or known.until <= self._clock():
            return
        if known.policy is not None and known.policy is not self._policy.current:
            del self._failed[grant]
            return
        raise known.error.copy() if isinstance(known.error, BackendAuthFailed) else known.error

    def _fetch_of(self, grant: Grant, caller_token: str) -> _Fetch:
        fetch = self._running.get(grant)
        if fetch is None:
            fetch = self._running[grant] = _Fetch(asyncio.create_task(self._fetch(grant, caller_token)))
            fetch.task.add_done_callback(lambda done: self._done(grant, done))
        return fetch

    def _counts(self, fetch: _Fetch) -> bool:
        """Whether the failure of a caller that waited for this one is news to the circuit breaker."""
        now = self._clock()
        if now - fetch.counted < _COUNTED_SECONDS:
            return False
        fetch.counted = now
        return True

    def _done(self, grant: Grant, task: asyncio.Task[str]) -> None:
        self._running.pop(grant, None)
        if not task.cancelled():
            task.exception()  # seen: perhaps no caller waits any more

    async def _fetch(self, grant: Grant, caller_token: str) -> str:
        began, policy = self._clock(), self._policy.current
        try:
            try:
                async with asyncio.timeout(FETCH_SECONDS) as scope:
                    granted = await self._granted(grant, caller_token)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise TimedOut(f"no token within {FETCH_SECONDS:g} s") from None
        except OutboundError as error:
            if isinstance(error, EgressRefused):
                self._note(grant, error, _REFUSED_SECONDS, policy)
                raise
            down = isinstance(error, Unreachable | TimedOut)
            raise self._noted(
                grant, BackendAuthFailed(f"no answer of the authorization server: {error}", down=down)
            ) from error
        except BackendAuthFailed as failed:
            raise self._noted(grant, failed) from None
        except Refused as refused:
            self._note(grant, refused, _REFUSED_SECONDS, policy)
            raise
        self._observe(TokenOutcome.GRANTED)
        self._failed.pop(grant, None)
        if self._is_current(grant):
            until = began + granted.lifetime - min(EARLY, granted.lifetime / 2)
            until = min(until, began + grant.expires_at - self._now())
            _put(self._held, grant, _Token(granted.value, until))
        return granted.value

    def _noted(self, grant: Grant, failed: BackendAuthFailed) -> BackendAuthFailed:
        log.warning(
            "no access token for %s of namespace %s from its authorization server: %s",
            grant.backend,
            grant.namespace,
            failed.detail,
        )
        self._note(grant, failed, _FAILED_SECONDS if failed.down else _REFUSED_SECONDS)
        return failed

    def _note(
        self,
        grant: Grant,
        error: BackendAuthFailed | Refused | EgressRefused,
        seconds: float,
        policy: EgressPolicy | None = None,
    ) -> None:
        if not isinstance(error, BackendAuthFailed):
            self._observe(TokenOutcome.NOT_ALLOWED)
        else:
            self._observe(TokenOutcome.DOWN if error.down else TokenOutcome.REFUSED)
        if self._is_current(grant):
            _put(self._failed, grant, _Failure(self._clock() + seconds, error.with_traceback(None), policy))

    async def _granted(self, grant: Grant, caller_token: str) -> answers.Granted:
        resource, url = grant.resource, grant.token_url
        if grant.issuer is not None:
            return await self._exchanged(grant, grant.issuer, caller_token)
        if (at := grant.token_service) is not None:
            to = service_target(
                at.name, at.namespace, at.port, at.cluster_ip, at.path, grant.namespace, self._policy.current
            )
        else:
            if url is None:
                assert grant.server is not None
                found = await discovery.found(
                    lambda *asked: self._send(grant, *asked), grant.server, resource, self._policy.current
                )
                url, resource = found.token_url, found.resource
            to = check_url(url, self._policy.current)
        if grant.server is None:
            _listed(grant, to.names)
        else:
            _check_found(grant, grant.server, to)
        headers, body = grants.request(grant, resource)
        return answers.token(await self._send(grant, to, "POST", to.path, headers, body))

    async def _exchanged(self, grant: Grant, issuer: Issuer, caller_token: str) -> answers.Granted:
        """A token for the caller, of the issuer that made the caller's. No manifest has a say in where that is."""
        if issuer.exchange_url is None:
            raise BackendAuthFailed(
                "the tool's backend takes tokens of callers, and those of the caller's issuer are not exchanged here. Set"
                " exchange_url of this issuer in the registry's settings"
            )
        to = trusted(issuer.exchange_url)
        _listed(grant, credential_hosts.of_url(to.scheme, to.host, to.port))
        headers, body = grants.request(grant, grant.resource, caller_token)
        ca_file = issuer.ca_file if to.scheme == "https" else None
        return answers.token(await self._send(grant, to, "POST", to.path, headers, body, ca_file))

    async def _send(
        self,
        grant: Grant,
        to: Target,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        ca_file: str | None = None,
    ) -> OutboundResponse:
        return await self._outbound.send(
            OutboundRequest(
                target=to,
                method=method,
                path=path,
                headers=headers,
                body=body,
                timeout=FETCH_SECONDS,
                max_bytes=answers.MOST_BYTES,
                ca_file=ca_file,
                owner=grant.namespace,
            )
        )

    def forget_callers(self) -> None:
        """Drop what was obtained for callers: an issuer's keys have changed, so their tokens may be void."""
        for grant in [each for each in self._held if each.issuer is not None]:
            del self._held[grant]

    def _forget(self) -> None:
        """Drop what was obtained with Secrets that are gone or have changed."""
        kept: tuple[OrderedDict[Grant, Any], ...] = (self._held, self._failed, self._dropped)
        for held in kept:
            for grant in [each for each in held if not self._is_current(each)]:
                del held[grant]

    def _is_current(self, grant: Grant) -> bool:
        return grants.values(grant.references, self._credentials) == (grant.client_id, grant.client_secret)


async def _joined(task: asyncio.Task[str], seconds: float) -> str:
    """What becomes of a request, within `seconds`. It goes on without a caller that leaves."""
    try:
        async with asyncio.timeout(seconds) as scope:
            return await asyncio.shield(task)
    except TimeoutError:
        if not scope.expired():
            raise
        raise BackendAuthFailed(
            f"the authorization server gave no token within {seconds:g} s", down=True
        ) from None
    except BackendAuthFailed as failed:
        raise failed.copy() from failed


def _listed(grant: Grant, names: frozenset[str]) -> None:
    """Whether the client's secret may go to a place of these names."""
    if names.isdisjoint(grant.hosts):
        raise Refused(
            "the credential's annotation toolcrib.dev/hosts does not list the token endpoint's host. Add it; a host without"
            " a port means https on port 443"
        )


def _check_found(grant: Grant, server: Target, to: Target) -> None:
    """Raise unless the client's secret may go to the token endpoint that the server's metadata names.

    The server's owner chose it: of a host that the annotation lists, another path may be another tenant, or tell the secret.
    """
    if not to.names.isdisjoint(server.names):
        # the Secret lists it for the tokens; that it may have the secret too, only the manifest's author can say
        raise BackendAuthFailed(
            "the server's metadata names the server itself as the token endpoint, so it would get the client's secret. If"
            " that is intended, set auth.oauth.tokenUrl"
        )
    if credential_hosts.of_endpoint(to.scheme, to.host, to.port, to.path).isdisjoint(grant.hosts):
        _listed(grant, to.names)
        raise Refused(
            "the server's metadata names the token endpoint"
            f" {escape(truncate(f'{to.scheme}://{to.authority}{to.path}', _SHOWN))}, and the credential's annotation"
            " toolcrib.dev/hosts lists its host alone. If it is the authorization server's, add this URL, or set"
            " auth.oauth.tokenUrl"
        )


def _put(held: OrderedDict[Grant, _T], grant: Grant, value: _T) -> None:
    held[grant] = value
    held.move_to_end(grant)
    if len(held) > _MOST:
        held.popitem(last=False)
