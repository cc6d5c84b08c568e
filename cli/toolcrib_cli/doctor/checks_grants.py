"""Checks of Tools and bindings. Facts in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.names import is_reserved_scope
from toolcrib.resources import durations
from toolcrib_cli.doctor.facts import Facts, Object, Place, Verdict, failed, listed, name_of, passed
from toolcrib_cli.doctor.network import open_ended

_LOOPBACK = tuple(f"http://{host}{end}" for host in ("127.0.0.1", "localhost", "[::1]") for end in ":/")


def _bindings(facts: Facts) -> Iterator[tuple[str, Object]]:
    for kind in ("AgentScopeBinding", "ClusterAgentScopeBinding"):
        for binding in facts.of(kind):
            yield kind, binding


def everywhere(facts: Facts) -> Verdict:
    """Grants over the tools of all namespaces, those of tomorrow too."""
    found = [
        name_of(b)
        for b in facts.of("ClusterAgentScopeBinding")
        if _gives_tools(b["spec"]) and _all_namespaces(b["spec"])
    ]
    if found:
        return failed(f"grants over the tools of all namespaces: {listed(found)}")
    return passed("no binding grants over all namespaces")


def _all_namespaces(spec: Object) -> bool:
    return spec.get("namespaceSelector") is not None and open_ended(spec["namespaceSelector"])


def _gives_tools(spec: Object) -> bool:
    return any(not is_reserved_scope(scope) for scope in spec.get("scopes") or ())


def expiring(facts: Facts) -> Verdict:
    """Powers of the registry, and grants over all namespaces, end by themselves; nothing that has ended is left lying."""
    forever, over, never = [], [], 0
    for kind, binding in _bindings(facts):
        spec = binding["spec"]
        end = spec.get("expiresAt")
        if end is not None and durations.instant(end) <= facts.now:
            over.append(name_of(binding))
        if end is not None or not spec.get("scopes"):
            continue
        never += 1
        powers = any(is_reserved_scope(scope) for scope in spec["scopes"])
        if powers or (kind == "ClusterAgentScopeBinding" and _all_namespaces(spec)):
            forever.append(name_of(binding))
    if forever:
        return failed(f"powers or grants over all namespaces without expiresAt: {listed(forever)}")
    if over:
        return failed(f"expired and still there: {listed(over)}")
    return passed(f"{never} other grants have no expiresAt" if never else "every grant has an expiresAt")


def plain_http(facts: Facts) -> Verdict:
    """`url:` backends without TLS; in the local mode loopback may have none."""
    spared = _LOOPBACK if facts.place is Place.LOCAL else ()
    urls = (
        (name_of(t), str(((t["spec"].get("backend") or {}).get("http") or {}).get("url") or "").lower())
        for t in facts.of("Tool")
    )
    found = [name for name, url in urls if url.startswith("http://") and not url.startswith(spared)]
    if found:
        return failed(f"called over plain HTTP: {listed(found)}")
    return passed(f"every url: backend is called over https{' or on loopback' if spared else ''}")
