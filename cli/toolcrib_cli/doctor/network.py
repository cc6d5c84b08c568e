"""Whom NetworkPolicies let in to a pod: networking.k8s.io/v1, ingress alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network

from toolcrib_cli.doctor.facts import Object

NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it."""
_WIDE = 8
"""A block of addresses with a shorter prefix is taken for everywhere: two halves are the whole, too."""


@dataclass(frozen=True, slots=True)
class Door:
    """Whether a policy selects a pod, whether everybody may reach a port of it all the same, and who else may."""

    selected: bool
    everybody: bool
    peers: tuple[Object, ...] = ()
    namespace: str = ""

    @property
    def named(self) -> list[str]:
        """The peers, each once, for people."""
        return list(dict.fromkeys(_named(peer, self.namespace) for peer in self.peers))


def door(
    policies: Iterable[Object], namespace: str, labels: Mapping[str, str], ports: Collection[int | str]
) -> Door:
    """Who may reach `ports` (numbers and names) of a pod with these labels.

    Policies add up: one rule without peers opens what another closes.
    """
    mine = [
        p
        for p in policies
        if p["metadata"]["namespace"] == namespace
        and "Ingress" in (p["spec"].get("policyTypes") or ["Ingress"])
        and matches(p["spec"].get("podSelector") or {}, labels)
    ]
    rules = [r for p in mine for r in p["spec"].get("ingress") or () if _about(r.get("ports") or (), ports)]
    everybody = any(not r.get("from") or any(map(_anybody, r["from"])) for r in rules)
    peers = tuple(peer for r in rules for peer in r.get("from") or ())
    return Door(bool(mine), everybody, peers, namespace)


def matches(selector: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; an empty one selects everything."""
    wanted = selector.get("matchLabels") or {}
    if not isinstance(wanted, Mapping) or any(labels.get(k) != v for k, v in wanted.items()):
        return False
    rules = selector.get("matchExpressions") or ()
    return isinstance(rules, list | tuple) and all(_holds(rule, labels) for rule in rules)


def open_ended(selector: Mapping[str, object] | None) -> bool:
    """Whether a label selector names nothing that must be there: it selects all, or all but some, also what comes later."""
    if not selector:
        return True
    rules = selector.get("matchExpressions") or ()
    named = isinstance(rules, list | tuple) and any(
        rule["operator"] == "In" or (rule["operator"] == "Exists" and rule["key"] != NAME_LABEL)
        for rule in rules
    )
    return not selector.get("matchLabels") and not named


def _holds(rule: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = rule["key"], rule["operator"], rule.get("values") or ()
    if operator == "In":
        return bool(labels.get(key) in values)
    if operator == "NotIn":
        return bool(labels.get(key) not in values)
    return bool((key in labels) == (operator == "Exists"))


def _about(rules: Iterable[Object], ports: Collection[int | str]) -> bool:
    rules = list(rules)
    for rule in rules:
        port, end = rule.get("port"), rule.get("endPort")
        if rule.get("protocol", "TCP") == "TCP" and (port is None or port in ports):
            return True
        if (
            isinstance(port, int)
            and end is not None
            and any(isinstance(p, int) and port <= p <= end for p in ports)
        ):
            return True
    return not rules


def _anybody(peer: Object) -> bool:
    if "ipBlock" in peer:
        return ip_network(peer["ipBlock"]["cidr"], strict=False).prefixlen < _WIDE
    return (
        "namespaceSelector" in peer
        and open_ended(peer["namespaceSelector"])
        and open_ended(peer.get("podSelector"))
    )


def _named(peer: Object, namespace: str) -> str:
    if "ipBlock" in peer:
        return f"addresses {peer['ipBlock'].get('cidr')}"
    where = f"namespace {namespace}"
    if "namespaceSelector" in peer:
        where = f"namespaces {_selector(peer['namespaceSelector'])}"
    return (
        f"pods {_selector(peer['podSelector'])} of {where}" if peer.get("podSelector") else f"pods of {where}"
    )


def _selector(selector: Object) -> str:
    said = [f"{k}={v}" for k, v in (selector.get("matchLabels") or {}).items()]
    said += [
        f"{e['key']} {e['operator']} {'|'.join(e.get('values') or ())}".strip()
        for e in selector.get("matchExpressions") or ()
    ]
    return ",".join(said) or "all"
