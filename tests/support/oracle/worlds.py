"""Random worlds: tools, bindings, accounts and callers as plain dicts, made of one seed and nothing else.

Everything is drawn from small pools, so that things meet: one name on several servers and in several namespaces, names
that differ in case, names with dots and colons in patterns, one name as a client's, a user's and a group's, dates just
before and after the moments asked about. The shapes are those of `decisions`.
"""

import random
from typing import Any

from oracle.decisions import Binding, Issuers, Tool, World

Drawn = random.Random

CLUSTER = "https://cluster.oracle.test"
LOGIN = "https://login.oracle.test"
PLAIN = "https://plain.oracle.test"
LOOSE = "https://loose.oracle.test"

KINDS: dict[str, dict[str, Any]] = {
    "closed": {"anonymous": "none", "totals": "visible", "cluster": "bindings"},
    "open": {"anonymous": "list", "totals": "all", "cluster": "bindings"},
    "local": {"anonymous": "none", "totals": "all", "cluster": "local"},
}
"""The registries that worlds are published to: what of their settings bears on who sees what."""

START = 1_900_000_000
"""The moment around which everything happens; tokens are issued an hour before it."""

NAMESPACES = ("a", "team-a", "team-b")
SERVERS = ("github", "GitHub", "web", "git")
NAMES = ("read_file", "Read_File", "delete_repo", "read", "a.b", "b", "team-a.read", "a__b", "register", "x")
SCOPES = ("fs:read", "fs:write", "git:use", "Fs:Read", "x")
RESERVED = ("registry:admin", "registry:write")
TAGS = ("files", "Code", "rest")
ACCOUNTS = ("bot", "ops", "cli")
PATTERNS = (
    "*", "read_*", "READ_FILE", "delete_repo", "re?d", "*e*", "b", "a?b", "[ab]*", "nothing",
    "github:*", "git*:read_*", "web:delete_repo", "*:*", "GIT?UB:*e*d*", "web:b", "?:x", "git:?",
)  # fmt: skip
CLUSTER_PATTERNS = (
    "*", "read_*", "Delete_Repo", "x", "?", "nothing",
    "*/github:*", "team-a/*:read_*", "team-?/web:*", "a/GIT*:*", "*/*:delete_*", "*a/*b:?e*",
)  # fmt: skip


def issuers(kind: str) -> Issuers:
    """The issuers of a kind of registry, by `iss`."""
    found = [
        {"iss": CLUSTER, "policy": KINDS[kind]["cluster"], "cluster": True},
        {"iss": LOGIN, "policy": "intersection", "cluster": False},
        {"iss": PLAIN, "policy": "bindings", "cluster": False},
        {"iss": LOOSE, "policy": "token", "cluster": False},
    ]
    return {str(issuer["iss"]): issuer for issuer in found}


def rarely(draw: Drawn, one_in: int = 4) -> bool:
    """Worlds in which everything is narrowed grant nothing and prove nothing."""
    return draw.randrange(one_in) == 0


def some(draw: Drawn, pool: tuple[Any, ...], least: int, most: int) -> list[Any]:
    """Between `least` and `most` different ones."""
    return draw.sample(pool, draw.randint(least, min(most, len(pool))))


def moment(draw: Drawn) -> int:
    """A date near the start: many fall on the same second."""
    return START + draw.randint(-6, 6) * 10


def world(draw: Drawn, kind: str | None = None) -> World:
    """A world with a handful of callers."""
    kind = kind or draw.choice(tuple(KINDS))
    callers: dict[str, Any] = {f"caller-{i}": caller(draw, kind) for i in range(draw.randint(2, 5))}
    callers["anonymous"] = "anonymous"
    if rarely(draw):
        callers["garbage"] = "garbage"
    tools: list[Tool] = []
    for i in range(draw.choice((1, 2, 4, 6, 9, 14))):
        made = tool(draw, i)
        if not any(clashes(made, other) for other in tools):
            tools.append(made)
    bindings = [binding(draw, i, callers) for i in range(draw.choice((1, 3, 5, 8)))]
    if rarely(draw, 3):
        bindings.append(suspension(draw, 40, callers))
    draw.shuffle(tools)
    return {
        "kind": kind,
        "anonymous": KINDS[kind]["anonymous"],
        "totals": KINDS[kind]["totals"],
        "tools": tools,
        "bindings": bindings,
        "accounts": accounts(draw) if kind != "local" and not rarely(draw, 3) else None,
        "callers": callers,
    }


def clashes(one: Tool, other: Tool) -> bool:
    """A name is unique per namespace and server: the operator publishes the older one only."""
    keys = ("namespace", "server", "name")
    return [one[k] for k in keys] == [other[k] for k in keys]


def tool(draw: Drawn, number: int) -> Tool:
    """A tool; its marker is a word that no other tool's text holds."""
    namespace = draw.choice(NAMESPACES)
    scopes = some(draw, SCOPES, 1, 4) if rarely(draw, 2) else [draw.choice(SCOPES)]
    if rarely(draw, 30):
        scopes[0] = draw.choice(RESERVED)
    return {
        "id": f"{namespace}/tool-{number}",
        "namespace": namespace,
        "name": draw.choice(NAMES),
        "server": draw.choice((None, *SERVERS)),
        "scopes": scopes,
        "match": "All" if rarely(draw, 3) else "Any",
        "state": draw.choice(("Disabled", "Deprecated")) if rarely(draw, 5) else "Active",
        "quarantined": rarely(draw, 8),
        "tags": some(draw, TAGS, 0, 2),
        "marker": f"mark{number}er{draw.randrange(10**6)}",
    }


def accounts(draw: Drawn) -> dict[str, str]:
    """The cluster's ServiceAccounts as the operator publishes them: some were made anew, some are deleted."""
    found = {}
    for namespace in NAMESPACES:
        for name in ACCOUNTS:
            if not rarely(draw, 8):
                when = "anew" if rarely(draw, 8) else "first"
                found[f"{namespace}/{name}"] = f"uid-{when}-{namespace}-{name}"
    return found


def caller(draw: Drawn, kind: str) -> dict[str, Any]:
    """A caller of any issuer: an account, a client, a user, a member of a group, an impostor."""
    claims: dict[str, Any] = {"iat": START - 3600, "exp": moment(draw) if rarely(draw, 8) else START + 7200}
    if rarely(draw, 10):
        claims["nbf"] = moment(draw)
    chosen = draw.choice((CLUSTER, CLUSTER, LOGIN, PLAIN, LOOSE))
    if chosen == CLUSTER:
        namespace, name = draw.choice(NAMESPACES), draw.choice(ACCOUNTS)
        claims["sub"] = f"system:serviceaccount:{namespace}:{name}"
        if not rarely(draw, 10):
            claims["kubernetes.io"] = {
                "serviceaccount": {"name": name, "uid": f"uid-first-{namespace}-{name}"}
            }
        if kind == "local":
            if not rarely(draw, 3):
                claims["scope"] = " ".join(some(draw, (*SCOPES, *RESERVED), 0, 3))
            if rarely(draw, 3):
                claims["client_id"] = name
            if rarely(draw, 6):
                claims["sub"] = draw.choice(("alice", "cli"))
        elif rarely(draw, 4):
            claims["scope"] = " ".join(some(draw, SCOPES, 0, 3))  # says nothing where bindings decide
        if rarely(draw, 8):
            claims["groups"] = ["ops", "system:serviceaccounts:team-b"]  # of an account nobody reads them
        if rarely(draw, 30):
            claims["sub"] = draw.choice(
                ("system:serviceaccount:a", "system:serviceaccount::bot", "system:node:a", "bot")
            )
        return {"iss": CLUSTER, "claims": claims}
    claims["sub"] = draw.choice(("alice", "cli", "bot"))
    if rarely(draw, 20):
        claims["sub"] = "system:serviceaccount:a:bot"
    if not rarely(draw, 3):
        claims[draw.choice(("azp", "client_id"))] = draw.choice(("cli", "bot"))
    if not rarely(draw, 3):
        claims["groups"] = some(
            draw, ("ops", "cli", "system:serviceaccounts", "system:serviceaccounts:a"), 0, 3
        )
    if not rarely(draw, 5):
        carried = some(draw, (*SCOPES, *RESERVED), 0, 6)
        claims[draw.choice(("scp", "roles"))] = carried
        if rarely(draw, 3):
            claims["scope"] = " ".join(some(draw, SCOPES, 0, 4))  # the first claim counts, alone
    return {"iss": chosen, "claims": claims}


def subject(draw: Drawn, callers: dict[str, Any]) -> dict[str, Any]:
    """Mostly one that is there, in one of the ways in which it can be named; else anybody."""
    made: dict[str, Any] = {"kind": "", "namespace": None, "name": None, "issuer": None, "client": None}
    known = [c for c in callers.values() if isinstance(c, dict)]
    if known and not rarely(draw, 5):
        chosen = draw.choice(known)
        claims, iss = chosen["claims"], chosen["iss"]
        parts = claims["sub"].split(":")
        if iss == CLUSTER and len(parts) == 4:
            if rarely(draw, 4):
                return made | {
                    "kind": "Group",
                    "issuer": CLUSTER,
                    "name": draw.choice(("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}")),
                }
            if rarely(draw, 8):  # nobody: an account of the cluster is no user
                return made | {"kind": "User", "issuer": CLUSTER, "name": claims["sub"]}
            return made | {
                "kind": draw.choice(("ServiceAccount", "Agent")),
                "namespace": parts[2],
                "name": parts[3],
            }
        ways = [made | {"kind": "User", "issuer": iss, "name": claims["sub"]}]
        client = claims.get("azp") or claims.get("client_id")
        if client:
            ways.append(made | {"kind": "OAuthClient", "issuer": iss, "client": client})
        ways += [made | {"kind": "Group", "issuer": iss, "name": g} for g in claims.get("groups", [])]
        return draw.choice(ways)
    iss = draw.choice((CLUSTER, LOGIN, PLAIN, LOOSE, "https://nobody.oracle.test"))
    kind = draw.choice(("ServiceAccount", "Agent", "OAuthClient", "User", "Group"))
    if kind in ("ServiceAccount", "Agent"):
        return made | {"kind": kind, "namespace": draw.choice(NAMESPACES), "name": draw.choice(ACCOUNTS)}
    name = draw.choice(
        ("alice", "cli", "bot", "ops", "system:serviceaccount:a:bot", "system:serviceaccounts")
    )
    return (
        made | {"kind": kind, "issuer": iss} | ({"client": name} if kind == "OAuthClient" else {"name": name})
    )


def binding(draw: Drawn, number: int, callers: dict[str, Any]) -> Binding:
    """A binding of either kind that the schema would let through."""
    home = None if rarely(draw, 2) else draw.choice(NAMESPACES)
    patterns = PATTERNS if home else CLUSTER_PATTERNS
    servers = SERVERS if home else tuple(f"{n}/{s}" for n in NAMESPACES for s in SERVERS)
    aimed = tuple(p for p in patterns if ":" in p)
    only_denies = rarely(draw, 12)
    chosen = aimed if rarely(draw, 2) else patterns
    deny = some(draw, chosen, 1, 2) if only_denies or rarely(draw, 8) else []
    deny_scopes = some(draw, SCOPES, 1, 2) if rarely(draw, 2 if only_denies else 12) else []
    if deny and deny_scopes and rarely(draw, 2):
        deny = []
    dates = sorted({moment(draw), moment(draw)})
    scopes = some(draw, SCOPES, 1, 4)
    reach = [home] if home else None if rarely(draw, 3) else some(draw, NAMESPACES, 1, 2)
    if rarely(draw, 12):  # of a namespaced binding it is worth nothing
        scopes.append(draw.choice(RESERVED))
    return {
        "uid": f"binding-{number}",
        "namespace": home,
        "name": f"{draw.choice('mnop')}-{number}",
        "subjects": [subject(draw, callers) for _ in range(draw.choice((1, 1, 2, 4)))],
        "reach": reach,
        "listed": home is not None or (reach is not None and not rarely(draw, 3)),
        "scopes": [] if only_denies else scopes,
        "allow": None if only_denies or not rarely(draw, 3) else some(draw, chosen, 1, 3),
        "deny": deny,
        "deny_scopes": deny_scopes,
        "servers": some(draw, servers, 1, 4) if rarely(draw, 3) else None,
        "from": dates[0] if rarely(draw, 3) else None,
        "until": dates[-1] + 1 if rarely(draw, 3) else None,
        "suspends": False,
    }


def suspension(draw: Drawn, number: int, callers: dict[str, Any]) -> Binding:
    """A suspended Agent: its service account, and mostly somebody who is there."""
    home, name = draw.choice(NAMESPACES), draw.choice(ACCOUNTS)
    account = {"kind": "ServiceAccount", "namespace": home, "name": name, "issuer": None, "client": None}
    others = [subject(draw, callers) for _ in range(draw.choice((0, 1, 1, 2)))]
    return binding(draw, number, callers) | {
        "namespace": home,
        "subjects": [account, *(s for s in others if s["kind"] != "Group")],
        "reach": None,
        "listed": False,
        "scopes": [],
        "allow": None,
        "deny": [],
        "deny_scopes": [],
        "servers": None,
        "from": None,
        "until": None,
        "suspends": True,
    }


def changed(draw: Drawn, before: World) -> World:
    """The same world a moment later: something came, went or was edited; the callers stay."""
    tools, bindings = [dict(t) for t in before["tools"]], [dict(b) for b in before["bindings"]]
    known = before["accounts"]
    if tools and rarely(draw, 2):
        at = draw.randrange(len(tools))
        if rarely(draw, 2):
            tools[at] |= {
                "scopes": [draw.choice(SCOPES)],
                "state": draw.choice(("Active", "Disabled", "Deprecated")),
                "quarantined": rarely(draw, 4),
            }
        else:
            del tools[at]
    if rarely(draw, 2):
        made = tool(draw, 100 + len(tools))
        if not any(clashes(made, other) for other in tools):
            tools.append(made)
    if bindings and not rarely(draw, 3):
        at = draw.randrange(len(bindings))
        if rarely(draw, 2):
            uid = bindings[at]["uid"]
            again = suspension if bindings[at]["suspends"] else binding
            bindings[at] = again(draw, 50, before["callers"]) | {"uid": uid}
        else:
            del bindings[at]
    if rarely(draw, 2):
        bindings.append(binding(draw, 60, before["callers"]))
    if rarely(draw, 4):
        bindings = [b for b in bindings if not b["suspends"]]
    elif rarely(draw, 4):
        bindings.append(suspension(draw, 70, before["callers"]))
    if known is not None and rarely(draw, 3):
        known = accounts(draw)
    return before | {"tools": tools, "bindings": bindings, "accounts": known}


def moments(draw: Drawn, made: World, count: int) -> list[float]:
    """Moments to ask at: half of them at or just around a date that something rests on."""
    dates: list[float] = [d for b in made["bindings"] for d in (b["from"], b["until"]) if d is not None]
    for who in made["callers"].values():
        if isinstance(who, dict):
            dates.append(who["claims"]["exp"])
            dates.extend([who["claims"]["nbf"] - 30] if "nbf" in who["claims"] else [])
    found = []
    for _ in range(count):
        if dates and rarely(draw, 2):
            found.append(draw.choice(dates) + draw.choice((-1, -0.001, 0, 0, 0.001, 1)))
        else:
            found.append(moment(draw) + draw.choice((0, 0, 5)))
    return found
