"""Issuers' public keys: fetched, kept, refreshed; never lost to an outage, never fetched at a caller's whim."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from toolcrib.identity import Issuer, KeySet
from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.identity.jwks import JwksInvalid, public_keys
from toolcrib_registry.outbound.errors import EgressRefused, OutboundError
from toolcrib_registry.outbound.guard import trusted
from toolcrib_registry.outbound.messages import Outbound, OutboundRequest

log = logging.getLogger(__name__)

ON_DEMAND_SECONDS = 30.0
"""An unknown key id causes at most one fetch per issuer in this time (DESIGN §5)."""
REFRESH_SECONDS = 300.0
FILE_SECONDS = 5.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
MAX_DOCUMENT = 256 * 1024
FETCH_SECONDS = 10.0


class KeysUnavailable(Exception):
    """An issuer's keys could not be had; the message names neither token nor content."""


@dataclass
class _State:
    """What is known of one issuer's keys."""

    issuer: Issuer
    keys: Mapping[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    fetched: bool = False
    asked: float | None = None
    running: asyncio.Task[bool] | None = None
    trouble: Trouble = field(default_factory=lambda: Trouble(log))


class KeyStore:
    """The public keys of all trusted issuers.

    Args:
        issuers: trusted issuers; those in `fixed` are never fetched.
        outbound: the one client; it goes to the configured addresses only.
        clock: monotonic seconds.
        fixed: keys that are known already (the local issuer's), by `iss`.
    """

    def __init__(
        self,
        issuers: Iterable[Issuer],
        outbound: Outbound,
        *,
        clock: Callable[[], float] = time.monotonic,
        fixed: KeySet | None = None,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._outbound = outbound
        self._clock = clock
        self._fixed = dict(fixed or {})
        self._every = refresh_seconds
        self._states = {i.issuer: _State(i) for i in issuers if i.issuer not in self._fixed}
        self._keys: KeySet = MappingProxyType(dict(self._fixed))
        self._version = 1
        self._told: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def keys(self) -> KeySet:
        """Public keys by issuer and key id; a new mapping after every change.

        An issuer without keys has shown an empty set; one that has never been reached is not in it.
        """
        return self._keys

    @property
    def version(self) -> int:
        """Grows whenever a key appears, changes or disappears."""
        return self._version

    def on_change(self, told: Callable[[], None]) -> None:
        """Have `told` called after every growth of `version`."""
        self._told.append(told)

    async def start(self) -> None:
        """Try every issuer once (an outage is logged, not raised), then keep refreshing until `close`."""
        for issuer in (state.issuer for state in self._states.values()):
            if issuer.keys_over_http:
                log.warning(
                    "issuer %s: keys are fetched over plain HTTP and can be tampered with", issuer.issuer
                )
        await asyncio.gather(*(self._single(state) for state in self._states.values()))
        self._tasks = [asyncio.create_task(self._keep(state)) for state in self._states.values()]

    async def close(self) -> None:
        """Stop refreshing."""
        running = [s.running for s in self._states.values() if s.running is not None]
        tasks, self._tasks = [*self._tasks, *running], []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self, issuer: str) -> bool:
        """Ask an issuer for its keys because a token names an unknown one; True where that changed them.

        Callers that come while a fetch runs wait for it; those within 30 s of the last one get False at once.
        """
        state = self._states.get(issuer)
        if state is None:
            return False
        before = state.keys
        if state.running is None:
            now = self._clock()
            if state.asked is not None and now - state.asked < ON_DEMAND_SECONDS:
                return False
            state.asked = now
        await self._single(state)
        return state.keys is not before

    async def _single(self, state: _State) -> bool:
        """One fetch at a time; a cancelled waiter does not cancel it for the others."""
        if state.running is None:
            state.running = asyncio.create_task(self._fetch(state))
            state.running.add_done_callback(lambda _: setattr(state, "running", None))
        task = state.running
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if task.cancelled() and (waiter is None or not waiter.cancelling()):
                return False  # the store was closed, not this waiter
            raise

    async def _keep(self, state: _State) -> None:
        # `start` has tried once: an issuer that was away then is asked again soon, not after the usual time
        failures = 0 if state.fetched else 1
        while True:
            wait = FILE_SECONDS if state.issuer.jwks_file else self._every
            if failures:
                wait = min(wait, RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1])
            await asyncio.sleep(wait)
            failures = 0 if await self._single(state) else failures + 1

    async def _fetch(self, state: _State) -> bool:
        try:
            found, sources = public_keys(await self._document(state.issuer), state.issuer)
        except (KeysUnavailable, JwksInvalid) as error:
            state.trouble.failed("issuer %s: keys not refreshed: %s", state.issuer.issuer, error)
            return False
        except Exception:
            # whatever it is, it must not end the refreshing nor reach the caller with the unknown key
            log.exception("issuer %s: keys not refreshed", state.issuer.issuer)
            return False
        first, state.fetched = not state.fetched, True
        state.trouble.over("issuer %s: keys refreshed again", state.issuer.issuer)
        if first or sources != state.sources:
            state.keys, state.sources = found, sources
            self._version += 1
            self._keys = MappingProxyType(
                {**self._fixed, **{name: s.keys for name, s in self._states.items() if s.fetched}}
            )
            log.info("issuer %s: %d keys", state.issuer.issuer, len(found))
            for told in self._told:
                told()
        return True

    async def _document(self, issuer: Issuer) -> Any:
        if issuer.jwks_file is not None:
            return _parsed(await asyncio.to_thread(_read, issuer.jwks_file))
        if issuer.jwks_uri is not None:
            return await self._get(issuer.jwks_uri, issuer)
        base = issuer.issuer.rstrip("/")
        found = await self._get(f"{base}/.well-known/openid-configuration", issuer)
        if not isinstance(found, dict) or found.get("issuer") != issuer.issuer:
            raise KeysUnavailable("the discovery document names another issuer")
        uri = found.get("jwks_uri")
        if not isinstance(uri, str) or (base.startswith("https:") and not uri.startswith("https:")):
            raise KeysUnavailable("the discovery document has no usable jwks_uri")
        return await self._get(uri, issuer)

    async def _get(self, url: str, issuer: Issuer) -> Any:
        headers = {"accept": "application/jwk-set+json, application/json"}
        if issuer.token_file is not None:
            token = (await asyncio.to_thread(_read, issuer.token_file)).decode("ascii", "replace").strip()
            if not token.isascii() or not token.isprintable() or not token:
                raise KeysUnavailable("token_file holds no token")
            headers["authorization"] = f"Bearer {token}"
        try:
            place = trusted(url)
            response = await self._outbound.send(
                OutboundRequest(
                    target=place,
                    method="GET",
                    path=place.path,
                    headers=headers,
                    timeout=FETCH_SECONDS,
                    max_bytes=MAX_DOCUMENT,
                    ca_file=issuer.ca_file if place.scheme == "https" else None,
                )
            )
        except EgressRefused as refused:
            raise KeysUnavailable(f"the address cannot be used: {refused.reason}") from refused
        except OutboundError as error:
            raise KeysUnavailable(str(error)) from error
        if response.status != 200:
            raise KeysUnavailable(f"the response has status {response.status}")
        return _parsed(response.body)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        raise KeysUnavailable(f"a configured file cannot be read: {error.strerror}") from error
    if len(content) > MAX_DOCUMENT:
        raise KeysUnavailable("a configured file is too large")
    return content


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise KeysUnavailable("the response is not JSON") from None
