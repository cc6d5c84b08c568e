"""Which backends are probed, and where they are: pure, by the published tools and the outbound guard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.probes import MOST_BACKENDS, ProbeOutcome, backend_key
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.outbound.errors import EgressRefused, NoAddress
from toolcrib_registry.outbound.guard import EgressRule, Target

Where = Callable[[PublishedBackend, str], Target]
"""Where calls of a backend go, for a tool of a namespace. Raises EgressRefused."""
Place = tuple[str, int, bool, EgressRule]
"""Host, port, whether it speaks TLS, and by which rule it is judged: what one connection tells about."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend, as reports name it. `target` None: it is not dialled, for the reason that `verdict` gives."""

    key: str
    owner: str
    """The namespace of the first tool that calls it: on whose behalf its name is looked up."""
    tools: int
    target: Target | None = None
    verdict: ProbeOutcome | None = None

    @property
    def place(self) -> Place | None:
        """Backends of one place share their probes."""
        t = self.target
        return None if t is None else (t.host, t.port, t.scheme == "https", t.reach)


def backends(tools: Iterable[PublishedTool], where: Where) -> tuple[dict[str, Backend], int]:
    """The backends to be reported by key, and how many are left out.

    Those of active tools with a URL, and Services that the registry's settings move or of which no address is known. Other
    Services are the operator's to judge. Where there are too many, each namespace gets its share.
    """
    found: dict[str, Backend] = {}
    asked: dict[str, PublishedBackend] = {}
    for tool in tools:
        if not tool.active or (key := backend_key(tool.backend)) is None:
            continue
        assert tool.backend is not None
        known = found.get(key)
        if known is None:
            asked[key] = tool.backend
            found[key] = Backend(key, tool.namespace, 1)
        else:
            found[key] = replace(known, tools=known.tools + 1, owner=min(known.owner, tool.namespace))
    located = {key: _located(one, asked[key], where) for key, one in found.items()}
    wanted = {key: one for key, one in located.items() if _is_probed(one)}
    kept = _shares(wanted)
    return kept, len(wanted) - len(kept)


def _located(backend: Backend, asked: PublishedBackend, where: Where) -> Backend:
    # the path has no say in it, and one that is odd no part of the others
    plain = asked if asked.url is None else PublishedBackend(url=f"{backend.key}/")
    try:
        return replace(backend, target=where(plain, backend.owner))
    except NoAddress:
        return replace(backend, verdict=ProbeOutcome.NO_ADDRESS)
    except EgressRefused:
        return replace(backend, verdict=ProbeOutcome.EGRESS_REFUSED)


def _is_probed(backend: Backend) -> bool:
    return backend.target is None or backend.target.reach is not EgressRule.SERVICE


def _shares(wanted: Mapping[str, Backend]) -> dict[str, Backend]:
    """At most `MOST_BACKENDS`: the first ones of each namespace, then the second ones, and so on."""
    if len(wanted) <= MOST_BACKENDS:
        return dict(wanted)
    of: defaultdict[str, list[str]] = defaultdict(list)
    for key in sorted(wanted):
        of[wanted[key].owner].append(key)
    ranked = sorted((rank, key) for keys in of.values() for rank, key in enumerate(keys))
    return {key: wanted[key] for _, key in ranked[:MOST_BACKENDS]}
