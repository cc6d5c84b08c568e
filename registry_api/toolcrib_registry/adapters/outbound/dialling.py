"""Makes connections, each address judged by the guard before it is dialled."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl

import aiohappyeyeballs

from toolcrib_registry.adapters.outbound.cares import OWNER
from toolcrib_registry.adapters.outbound.connection import Connection
from toolcrib_registry.adapters.outbound.dns_cache import Names, NotFound
from toolcrib_registry.adapters.outbound.forbidden_hosts import ForbiddenNames
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import Unreachable
from toolcrib_registry.outbound.guard import EgressRule, PolicySource, Target, check_address, dns_name

CONNECT_SECONDS = 5.0
NEXT_SECONDS = 0.25
"""When the next address of a host is tried, too (RFC 8305, 5)."""


class Gate:
    """What may be dialled under the rule of one reach: asked of the addresses of a name, and of each socket.

    Args:
        policy: the policy in effect.
        reach: the rule.
        names: looks names up.
        forbidden: what the policy's forbidden names resolve to.
    """

    def __init__(
        self, policy: PolicySource, reach: EgressRule, names: Names, forbidden: ForbiddenNames
    ) -> None:
        self._policy, self._reach = policy, reach
        self._names, self._forbidden = names, forbidden

    async def addresses(self, host: str, port: int) -> list[str]:
        """The IP addresses of a host; an address is its own.

        Raises:
            EgressRefused: one of them may not be dialled: among good ones it is no accident.
            NotFound: it has none, or nobody said so in time.
        """
        if hosts.address(host) is not None:
            return [host]
        found = await self._names(dns_name(host, self._reach), port)
        for ip in found:
            self._check(ip, port)
        return found

    def socket(self, info: aiohappyeyeballs.AddrInfoType) -> socket.socket:
        """A socket for exactly this address, if it may be dialled; the last gate before the connection.

        Raises:
            EgressRefused: it may not.
        """
        family, kind, proto, _, place = info
        self._check(str(place[0]), int(place[1]))
        return socket.socket(family=family, type=kind, proto=proto)

    def _check(self, ip: str, port: int) -> None:
        policy = self._policy.current
        check_address(ip, policy, reach=self._reach, port=port, closed=self._forbidden.addresses)


class Trust:
    """The certificates that are trusted: the system's, or those of a bundle, read again when it has changed."""

    def __init__(self) -> None:
        self._contexts: dict[str | None, tuple[int, ssl.SSLContext]] = {}

    async def context(self, ca_file: str | None) -> ssl.SSLContext:
        """For a bundle; None: the system's.

        Raises:
            Unreachable: the bundle cannot be read.
        """
        try:
            changed = 0 if ca_file is None else os.stat(ca_file).st_mtime_ns
            known = self._contexts.get(ca_file)
            if known is None or known[0] != changed:
                made = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
                made.set_alpn_protocols(["http/1.1"])
                known = self._contexts[ca_file] = (changed, made)
        except (OSError, ssl.SSLError) as error:
            raise Unreachable("the CA bundle cannot be read") from error
        return known[1]


async def dial(target: Target, gate: Gate, context: ssl.SSLContext | None, owner: str) -> Connection:
    """A connection to `target`, by TLS where there is a context.

    Raises:
        EgressRefused: the guard said no.
        Unreachable: there is none within `CONNECT_SECONDS`.
    """
    OWNER.set(owner)
    host = target.address or target.host
    try:
        found = await gate.addresses(host, target.port)
    except NotFound as error:
        raise Unreachable(f"the host's name cannot be resolved: {error}") from error
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            made = await aiohappyeyeballs.start_connection(
                [_info(ip, target.port) for ip in found],
                happy_eyeballs_delay=NEXT_SECONDS,
                interleave=1,
                loop=loop,
                socket_factory=gate.socket,
            )
            _, connection = await loop.create_connection(
                Connection,
                sock=made,
                ssl=context,
                server_hostname=None if context is None else target.host,
            )
    except TimeoutError as error:
        raise Unreachable(f"no connection within {CONNECT_SECONDS:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise Unreachable("the server's certificate is not trusted") from error
    except ssl.SSLError as error:
        raise Unreachable("the TLS handshake failed") from error
    except (OSError, ValueError) as error:
        raise Unreachable("the connection was refused") from error
    return connection


def _info(ip: str, port: int) -> aiohappyeyeballs.AddrInfoType:
    if ":" in ip:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port)
