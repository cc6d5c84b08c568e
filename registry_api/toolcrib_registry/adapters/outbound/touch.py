"""Opens a connection as a call would, and closes it: not a byte is sent, of TLS nothing after the handshake.

The guard judges what the name resolves to, and the address that is dialled, as it does for calls.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from functools import lru_cache

from toolcrib.wire.probes import ProbeOutcome
from toolcrib_registry.adapters.outbound.dialling import Gate
from toolcrib_registry.adapters.outbound.dns_cache import NotFound
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import Target

_OUTCOMES = {
    errno.ECONNREFUSED: ProbeOutcome.REFUSED,
    errno.ETIMEDOUT: ProbeOutcome.TIMED_OUT,
}


async def touch(target: Target, gate: Gate, *, seconds: float) -> ProbeOutcome:
    """What became of one connection to `target`, within `seconds`."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await _touch(target, gate, deadline.when() or 0.0)
    except TimeoutError:
        return ProbeOutcome.TIMED_OUT
    except EgressRefused:
        return ProbeOutcome.EGRESS_REFUSED
    except NotFound:
        return ProbeOutcome.NAME_NOT_FOUND
    except OSError as error:
        return _outcome(error)


async def _touch(target: Target, gate: Gate, deadline: float) -> ProbeOutcome:
    """Try each address; the last one's failure counts."""
    host = target.address or target.host
    addresses = await gate.addresses(host, target.port)
    loop, last = asyncio.get_running_loop(), ProbeOutcome.UNREACHABLE
    for number, address in enumerate(addresses):
        # an address whose packets are dropped leaves time for the others
        share = (deadline - loop.time()) / (len(addresses) - number)
        try:
            async with asyncio.timeout(share):
                last = await _dial(target, gate, address)
        except TimeoutError:
            last = ProbeOutcome.TIMED_OUT
        except OSError as error:
            last = _outcome(error)
        if last is ProbeOutcome.CONNECTED:
            break
    return last


async def _dial(target: Target, gate: Gate, address: str) -> ProbeOutcome:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    loop = asyncio.get_running_loop()
    made = gate.socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, target.port)))
    with made:
        made.setblocking(False)
        await loop.sock_connect(made, (address, target.port))
        if target.scheme == "https":
            try:
                transport, _ = await loop.create_connection(
                    asyncio.Protocol, sock=made, ssl=await asyncio.to_thread(_context), server_hostname=target.host
                )  # fmt: skip
            except OSError:  # of TLS, or the server hung up
                return ProbeOutcome.TLS_FAILED
            transport.abort()
    return ProbeOutcome.CONNECTED


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _outcome(error: OSError) -> ProbeOutcome:
    if isinstance(error, TimeoutError):
        return ProbeOutcome.TIMED_OUT
    return _OUTCOMES.get(error.errno or 0, ProbeOutcome.UNREACHABLE)
