"""Who may see and call what, said a second time: written from DESIGN §3 alone, in the plainest form there is.

It shares no code with the product (`tests/component/governance/test_oracle_independence.py` reads its imports).
Everything is plain dicts, as `worlds` makes them:

    world    {"tools": [...], "bindings": [...], "accounts": {"ns/name": uid} | None, "anonymous": "none" | "list"}
    tool     {"id", "namespace", "name", "server" | None, "scopes", "match": "Any" | "All", "state",
              "quarantined": bool}
    binding  {"uid", "namespace" | None, "name", "subjects", "reach": [namespaces] | None (all), "scopes",
              "allow" | None, "deny", "deny_scopes", "servers" | None, "from" | None, "until" | None, "listed": bool}
              ("listed": the namespaces of its reach are written out, not selected by labels)
    issuer   {"iss", "policy": "bindings" | "intersection" | "token" | "local", "cluster": bool}
    caller   {"iss", "claims": {...}} | "anonymous" | "garbage"

Where DESIGN is silent, the choice is the product's, said here so that a change of it is seen: server names ignore case as
patterns do; a ServiceAccount is never matched as a User; a bound ServiceAccount whose token has no UID, or another than
the published one, is gone; the caller without a token knows active tools only.
"""

from typing import Any

World = dict[str, Any]
Tool = dict[str, Any]
Binding = dict[str, Any]
Subject = dict[str, Any]
Caller = Any
Issuers = dict[str, dict[str, Any]]
Facts = dict[str, Any]

NOT_BEFORE_LEEWAY = 30
"""Seconds that an issuer's clock may run ahead; the expiry of a token has none."""

YES = "granted"
NO_IDENTITY = "identity"
SUSPENDED = "suspended"
INACTIVE = "inactive"
DENIED = "denied"
NOT_GRANTED = "not granted"
NOT_IN_TOKEN = "not in token"


def active(tool: Tool) -> bool:
    """Whether anybody may see it: it is not disabled, and not another than the one that was approved."""
    return tool["state"] != "Disabled" and not tool["quarantined"]


def glob(pattern: str, text: str) -> bool:
    """`*` is any run of characters, `?` is one; the whole text, ignoring case. Nothing else is special."""
    pattern, text = pattern.lower(), text.lower()
    reach = {0}  # positions of the text that the pattern read so far can end at
    for sign in pattern:
        if sign == "*":
            reach = {later for here in reach for later in range(here, len(text) + 1)}
        else:
            reach = {here + 1 for here in reach if here < len(text) and sign in ("?", text[here])}
    return len(text) in reach


def pattern_matches(pattern: str, tool: Tool, cluster: bool) -> bool:
    """`name` on any server, or `server:name`; in a cluster binding the server is `namespace/server`."""
    if ":" not in pattern:
        return glob(pattern, tool["name"])
    where, name = pattern.split(":", 1)
    if tool["server"] is None:
        return False
    if not cluster:
        return glob(where, tool["server"]) and glob(name, tool["name"])
    if "/" not in where:
        return False
    namespace, server = where.split("/", 1)
    return glob(namespace, tool["namespace"]) and glob(server, tool["server"]) and glob(name, tool["name"])


def who(world: World, caller: Caller, issuers: Issuers, now: float) -> Facts | None:
    """The facts that a token proves now, or None: no token, or one that is worth nothing."""
    if not isinstance(caller, dict):
        return None
    issuer, claims = issuers.get(caller["iss"]), caller["claims"]
    if issuer is None:
        return None
    if claims["exp"] <= now or claims.get("nbf", 0) > now + NOT_BEFORE_LEEWAY:
        return None
    subject = claims["sub"]
    account = None
    if issuer["cluster"] and subject.startswith("system:serviceaccount:"):
        parts = subject.split(":")
        if len(parts) != 4 or not parts[2] or not parts[3]:
            return None
        account = (parts[2], parts[3])
    elif subject.startswith("system:") or (issuer["cluster"] and issuer["policy"] != "local"):
        return None
    scopes = None
    for claim in ("scope", "scp", "roles"):
        if claim in claims:
            value = claims[claim]
            scopes = set(value.split()) if isinstance(value, str) else set(value)
            break
    policy = issuer["policy"]
    if policy == "local":  # no scope claim: bindings decide. Else the scopes do; of the token endpoint: both
        of_the_token_endpoint = account and "client_id" in claims
        policy = "bindings" if scopes is None else "intersection" if of_the_token_endpoint else "token"
    if account:
        groups = {"system:serviceaccounts", "system:serviceaccounts:" + account[0]}
    else:
        groups = {group for group in claims.get("groups", []) if not group.startswith("system:")}
    uid = claims.get("kubernetes.io", {}).get("serviceaccount", {}).get("uid")
    found = {
        "iss": issuer["iss"],
        "subject": subject,
        "account": account,
        "uid": uid if account else None,
        "client": claims.get("azp") or claims.get("client_id"),
        "groups": groups,
        "scopes": scopes or set(),
        "policy": policy,
    }
    return None if gone(world, found) else found


def gone(world: World, identity: Facts) -> bool:
    """The ServiceAccount of this token is bound, and it was deleted or made anew under the same name."""
    if world["accounts"] is None or identity["account"] is None:
        return False
    if not bindings_of(world, identity):
        return False
    known: str | None = world["accounts"].get("/".join(identity["account"]))
    return known is None or known != identity["uid"]


def is_subject(identity: Facts, subject: Subject) -> bool:
    """By issuer and claim, never by a name alone."""
    kind = subject["kind"]
    if kind in ("ServiceAccount", "Agent"):
        return bool(identity["account"] == (subject["namespace"], subject["name"]))
    if subject["issuer"] != identity["iss"]:
        return False
    if kind == "OAuthClient":
        return bool(identity["client"] and identity["client"] == subject["client"])
    if kind == "User":
        return identity["account"] is None and bool(identity["subject"] == subject["name"])
    return kind == "Group" and subject["name"] in identity["groups"]


def bindings_of(world: World, identity: Facts) -> list[Binding]:
    """Every binding that names this identity, in the order in which they are asked."""
    mine = [b for b in world["bindings"] if any(is_subject(identity, s) for s in b["subjects"])]
    return sorted(mine, key=lambda b: (b["namespace"] is not None, b["namespace"] or "", b["name"]))


def suspended(world: World, identity: Facts) -> str | None:
    """The uid of what stops this identity: an Agent that is suspended names it. Then nothing is there for it."""
    return next((b["uid"] for b in bindings_of(world, identity) if b["suspends"]), None)


def reaches(binding: Binding, tool: Tool) -> bool:
    """The namespaces alone: what a deny holds over."""
    return binding["reach"] is None or tool["namespace"] in binding["reach"]


def runs(binding: Binding, now: float) -> bool:
    """Whether its dates allow it now."""
    if binding["from"] is not None and now < binding["from"]:
        return False
    return binding["until"] is None or now < binding["until"]


def gives(binding: Binding, tool: Tool, now: float) -> set[str]:
    """Which of the tool's scopes this binding grants over it now."""
    cluster = binding["namespace"] is None
    if not runs(binding, now) or not reaches(binding, tool):
        return set()
    if binding["servers"] is not None:
        if tool["server"] is None:
            return set()
        name = tool["namespace"] + "/" + tool["server"] if cluster else tool["server"]
        if name.lower() not in [server.lower() for server in binding["servers"]]:
            return set()
    if binding["allow"] is not None and not any(pattern_matches(p, tool, cluster) for p in binding["allow"]):
        return set()
    return set(binding["scopes"]) & set(tool["scopes"])


def enough(tool: Tool, scopes: set[str]) -> bool:
    """Any or all of the tool's scopes."""
    needed = set(tool["scopes"])
    return needed <= scopes if tool["match"] == "All" else bool(needed & scopes)


def decide(
    world: World,
    caller: Caller,
    issuers: Issuers,
    tool: Tool,
    action: str,
    now: float,
    *,
    any_state: bool = False,
) -> tuple[bool, str, str | None]:
    """(allowed, reason, uid of the deciding binding or None). `action` is "list", "read" or "call"."""
    identity = who(world, caller, issuers, now)
    if identity is None:
        if caller != "anonymous" or world["anonymous"] != "list" or action != "list":
            return False, NO_IDENTITY, None
        absent = not active(tool) and not any_state
        return (False, INACTIVE, None) if absent else (True, YES, None)
    if (stopped := suspended(world, identity)) is not None:
        return False, SUSPENDED, stopped
    if not active(tool) and not any_state:
        return False, INACTIVE, None
    mine = bindings_of(world, identity)
    for binding in mine:
        cluster = binding["namespace"] is None
        by_name = any(pattern_matches(p, tool, cluster) for p in binding["deny"])
        by_scope = any(scope in binding["deny_scopes"] for scope in tool["scopes"])
        if reaches(binding, tool) and (by_name or by_scope):
            return False, DENIED, binding["uid"]
    if any(scope.lower().startswith("registry:") for scope in tool["scopes"]):
        return False, NOT_GRANTED, None  # no tool may carry one: one that does is nobody's
    if identity["policy"] == "token":
        return (True, YES, None) if enough(tool, identity["scopes"]) else (False, NOT_IN_TOKEN, None)
    granted: set[str] = set()
    for binding in mine:
        granted |= gives(binding, tool, now)
    if not enough(tool, granted):
        return False, NOT_GRANTED, None
    usable = granted
    if identity["policy"] == "intersection":
        usable = granted & identity["scopes"]
        if not enough(tool, usable):
            return False, NOT_IN_TOKEN, None
    first = next(b for b in mine if gives(b, tool, now) & usable)
    return True, YES, first["uid"]


def visible(world: World, caller: Caller, issuers: Issuers, now: float) -> list[str]:
    """The ids of the tools that the caller may list, in order."""
    return sorted(t["id"] for t in world["tools"] if decide(world, caller, issuers, t, "list", now)[0])


def has_power(world: World, caller: Caller, issuers: Issuers, scope: str, now: float) -> bool:
    """Whether the caller holds one of the registry's own powers, such as `registry:admin`."""
    identity = who(world, caller, issuers, now)
    if identity is None or suspended(world, identity):
        return False
    if identity["policy"] == "token":
        return scope in identity["scopes"]
    granted = any(
        binding["namespace"] is None and runs(binding, now) and scope in binding["scopes"]
        for binding in bindings_of(world, identity)
    )
    return granted and (identity["policy"] != "intersection" or scope in identity["scopes"])


def own_namespace(world: World, caller: Caller, issuers: Issuers, now: float) -> str | None:
    """The namespace of the caller's service account, or None."""
    identity = who(world, caller, issuers, now)
    return identity["account"][0] if identity and identity["account"] else None


def named_namespaces(world: World, caller: Caller, issuers: Issuers, now: float) -> set[str]:
    """Namespaces that bindings of the caller name, as far as they grant it scopes over tools now."""
    identity = who(world, caller, issuers, now)
    if identity is None or identity["policy"] == "token" or suspended(world, identity):
        return set()
    found: set[str] = set()
    for binding in bindings_of(world, identity):
        useful = [s for s in binding["scopes"] if not s.lower().startswith("registry:")]
        if identity["policy"] == "intersection":
            useful = [s for s in useful if s in identity["scopes"]]
        if useful and binding["listed"] and runs(binding, now):
            found.update(binding["reach"])
    return found


def in_force(world: World, caller: Caller, issuers: Issuers, now: float) -> set[str]:
    """The scopes that the caller holds now over whatever it may reach: what discovery shows as `scopes`."""
    identity = who(world, caller, issuers, now)
    if identity is None or suspended(world, identity):
        return set()
    if identity["policy"] == "token":
        return set(identity["scopes"])
    held: set[str] = set()
    for binding in bindings_of(world, identity):
        if runs(binding, now):
            reserved = {s for s in binding["scopes"] if s.startswith("registry:")}
            held |= set(binding["scopes"]) - (reserved if binding["namespace"] else set())
    return held & identity["scopes"] if identity["policy"] == "intersection" else held
