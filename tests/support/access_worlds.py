"""Random worlds as manifests, and changes of them: what `toolcrib access` is asked about, and what is applied then.

world = random_world(7)
world.manifests          # Namespaces, ServiceAccounts, Tools and bindings
changed, deleted = random_change(7, world)
random_patches(7, world)   # what somebody changes in the live objects, beside any file
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

import manifests

Manifest = dict[str, Any]

NAMESPACES = ("team-a", "team-b", "shop")
ACCOUNTS = ("bot", "planner", "ci")
SCOPES = ("read", "write", "use")
SERVERS = ("github", "web")
NAMES = ("read_file", "delete_repo", "grep", "Read_File")
OAUTH = "https://login.example"
CLUSTER_ISSUER = "https://kubernetes.default.svc"
PATTERNS = ("*", "read_*", "delete_*", "github:*", "*:grep", "nothing")
CLUSTER_PATTERNS = ("*", "read_*", "team-a/github:*", "*/web:*", "grep")
PAST, SOON, LATER = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "2999-06-01T00:00:00Z"


@dataclass(frozen=True)
class ManifestWorld:
    """Objects as people write them, in the order in which they are applied."""

    manifests: list[Manifest]

    def of(self, *kinds: str) -> list[Manifest]:
        """Those of some kinds."""
        return [m for m in self.manifests if m["kind"] in kinds]


def random_world(seed: int, *, accounts: bool = True) -> ManifestWorld:
    """A small world in which much meets: shared names, denials, dates, selectors, groups, accounts that are not there."""
    draw = random.Random(seed)
    found = [_namespace(name, draw) for name in NAMESPACES]
    if accounts:
        found += [account(ns, name) for ns in NAMESPACES for name in ACCOUNTS if draw.random() < 0.8]
    found += [random_tool(draw, i) for i in range(draw.randint(2, 9))]
    found += [random_binding(draw, i) for i in range(draw.randint(1, 7))]
    return ManifestWorld(found)


def random_change(seed: int, world: ManifestWorld) -> tuple[list[Manifest], list[str]]:
    """Manifests that are added or changed, and what is deleted (`Kind/namespace/name`)."""
    draw = random.Random(seed * 7919 + 1)
    changed: list[Manifest] = []
    bindings = world.of("AgentScopeBinding", "ClusterAgentScopeBinding")
    tools = world.of("Tool")
    for i in range(draw.randint(1, 3)):
        kind = draw.random()
        if kind < 0.45:
            changed.append(random_binding(draw, 100 + i))
        elif kind < 0.7 and bindings:
            old = draw.choice(bindings)
            new = random_binding(draw, 0, namespaced=old["kind"] == "AgentScopeBinding")
            changed.append({**new, "metadata": copy.deepcopy(old["metadata"])})
        elif kind < 0.85:
            changed.append(random_tool(draw, 100 + i))
        elif tools:
            old = draw.choice(tools)
            new = random_tool(draw, 0)
            for fixed in ("name", "server"):  # immutable, absent or not
                new["spec"].pop(fixed, None)
                if fixed in old["spec"]:
                    new["spec"][fixed] = old["spec"][fixed]
            changed.append({**new, "metadata": copy.deepcopy(old["metadata"])})
    if draw.random() < 0.2:
        changed.append(_namespace(draw.choice(NAMESPACES), draw))
    changed = list({ref_of(m): m for m in changed}.values())
    left = [m for m in (*bindings, *tools) if ref_of(m) not in {ref_of(c) for c in changed}]
    deleted = [ref_of(draw.choice(left))] if left and draw.random() < 0.4 else []
    return changed, deleted


def random_patches(seed: int, world: ManifestWorld) -> list[tuple[str, Manifest]]:
    """Merge patches of live objects that no manifest knows of; an API server may refuse some."""
    draw = random.Random(seed * 104729 + 2)
    found: list[tuple[str, Manifest]] = []
    for manifest in world.of("AgentScopeBinding", "ClusterAgentScopeBinding", "Tool", "Namespace"):
        if draw.random() < 0.5:
            continue
        if manifest["kind"] == "Namespace":
            change: Manifest = {"metadata": {"labels": {"tier": draw.choice(("gold", None))}}}
        elif manifest["kind"] == "Tool":
            change = {
                "spec": draw.choice(({"scopeMatch": "All"}, {"state": "Disabled"}, {"scopes": ["use"]}))
            }
        else:
            change = {"spec": draw.choice(_PATCHES)}
        found.append((ref_of(manifest), copy.deepcopy(change)))
    return found


_PATCHES: tuple[Manifest, ...] = (
    {"scopes": ["read", "write", "use"]},
    {"scopes": None, "tools": {"allow": None, "deny": ["*"]}, "limits": None},
    {"expiresAt": PAST, "notBefore": None},
    {"expiresAt": None, "notBefore": None},
    {"limits": {"callsPerDay": 3}},
    {"tools": {"deny": ["read_*"]}},
    {"tools": {"denyScopes": ["write"]}},
    {"tools": {"allow": ["read_*"]}},
    {"tools": None, "servers": None},
    {"namespaces": None, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}},
)


def ref_of(manifest: Manifest) -> str:
    """`Kind/namespace/name`, or `Kind/name`."""
    metadata = manifest["metadata"]
    return "/".join(p for p in (manifest["kind"], metadata.get("namespace"), metadata["name"]) if p)


def account(namespace: str, name: str) -> Manifest:
    """A ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}


def _namespace(name: str, draw: random.Random) -> Manifest:
    labels = {"tier": draw.choice(("gold", "silver"))} if draw.random() < 0.6 else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def random_tool(draw: random.Random, number: int) -> Manifest:
    """A Tool; with many of them names are shared, within a namespace too."""
    spec: Manifest = {
        "name": draw.choice(NAMES),
        "description": f"Tool number {number}.",
        "scopes": draw.sample(SCOPES, draw.randint(1, 2)),
        "backend": {"none": {}},
    }
    if draw.random() < 0.5:
        spec["server"] = draw.choice(SERVERS)
    if draw.random() < 0.25:
        spec["scopeMatch"] = "All"
    if draw.random() < 0.15:
        spec["state"] = "Disabled"
    return manifests.manifest("Tool", f"tool-{number}", draw.choice(NAMESPACES), **spec)


def random_binding(draw: random.Random, number: int, *, namespaced: bool | None = None) -> Manifest:
    """A binding of either kind, valid by the schema."""
    inside = draw.random() < 0.6 if namespaced is None else namespaced
    subjects = [_subject(draw, inside) for _ in range(draw.randint(1, 3))]
    spec: Manifest = {"subjects": [s for i, s in enumerate(subjects) if s not in subjects[:i]]}
    patterns = PATTERNS if inside else CLUSTER_PATTERNS
    only_denies = draw.random() < 0.15
    tools: Manifest = {}
    if not only_denies:
        spec["scopes"] = draw.sample(SCOPES, draw.randint(1, 2))
        if draw.random() < 0.3:
            tools["allow"] = draw.sample(patterns, draw.randint(1, 2))
    if only_denies or draw.random() < 0.15:
        if draw.random() < 0.6:
            tools["deny"] = [draw.choice(patterns[1:])]
        else:
            tools["denyScopes"] = draw.sample(SCOPES, draw.randint(1, 2))
    if tools:
        spec["tools"] = tools
    if draw.random() < 0.2:
        spec["servers"] = [
            draw.choice(SERVERS) if inside else f"{draw.choice(NAMESPACES)}/{draw.choice(SERVERS)}"
        ]
    dates = draw.random()
    if dates < 0.08:
        spec["expiresAt"] = PAST
    elif dates < 0.16:
        spec |= {"notBefore": SOON, "expiresAt": LATER}
    elif dates < 0.25:
        spec["expiresAt"] = LATER
    if not only_denies and draw.random() < 0.2:
        spec["limits"] = {"callsPerMinute": draw.randint(1, 60)}
    if inside:
        return manifests.manifest("AgentScopeBinding", f"grant-{number}", draw.choice(NAMESPACES), **spec)
    spec |= _territory(draw)
    return manifests.manifest("ClusterAgentScopeBinding", f"grant-{number}", **spec)


def _territory(draw: random.Random) -> Manifest:
    kind = draw.random()
    if kind < 0.5:
        return {"namespaces": draw.sample(NAMESPACES, draw.randint(1, 2))}
    if kind < 0.7:
        return {"namespaceSelector": {}}
    if kind < 0.9:
        label = {"kubernetes.io/metadata.name": draw.choice(NAMESPACES)}
        return {"namespaceSelector": {"matchLabels": label}}
    return {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}


def _subject(draw: random.Random, inside: bool) -> Manifest:
    kind = draw.random()
    if kind < 0.6:
        named = {"kind": draw.choice(("ServiceAccount", "Agent")), "name": draw.choice(ACCOUNTS)}
        if inside and draw.random() < 0.5:
            return named
        return {**named, "namespace": draw.choice(NAMESPACES)}
    if kind < 0.72:
        of = f":{draw.choice(NAMESPACES)}" if draw.random() < 0.7 else ""
        return {"kind": "Group", "issuer": CLUSTER_ISSUER, "name": f"system:serviceaccounts{of}"}
    if kind < 0.84:
        return {"kind": "OAuthClient", "issuer": OAUTH, "clientId": draw.choice(("ide", "cli"))}
    if kind < 0.92:
        return {"kind": "User", "issuer": OAUTH, "name": "alice"}
    if kind < 0.95:  # no token of that issuer has such a group
        return {"kind": "Group", "issuer": OAUTH, "name": "system:serviceaccounts"}
    return {"kind": "Group", "issuer": OAUTH, "name": "ops"}
