"""The access review: what it says of a caller is what the caller would get with a token that is valid for good."""

from typing import Any
from urllib.parse import urlencode

from oracle import decisions, worlds
from oracle.asked import Asked, same
from oracle.decisions import Caller
from oracle.naming import Names

ADMIN: Caller = {
    "iss": worlds.LOOSE,
    "claims": {
        "sub": "auditor",
        "iat": worlds.START - 3600,
        "exp": worlds.START + 7200,
        "scope": "registry:admin",
    },
}
REASONS = {
    "granted": decisions.YES,
    "account_gone": decisions.NO_IDENTITY,
    "agent_suspended": decisions.SUSPENDED,
    "no_identity": decisions.NO_IDENTITY,
    "tool_disabled": decisions.INACTIVE,
    "tool_quarantined": decisions.INACTIVE,
    "denied": decisions.DENIED,
    "no_binding": decisions.NOT_GRANTED,
    "not_valid_now": decisions.NOT_GRANTED,
    "not_allowed_by_name": decisions.NOT_GRANTED,
    "scope_not_granted": decisions.NOT_GRANTED,
    "token_lacks_scope": decisions.NOT_IN_TOKEN,
}


async def review(q: Asked) -> list[str]:
    """`GET /v1/access-review`: for the caller itself 401 or 403, unless it may; for the auditor the truth about it."""
    about = _subject(q.caller)
    refusal = await q.get("/v1/access-review", urlencode({"subject": "ServiceAccount/a/bot"}))
    power = decisions.has_power(q.world, q.caller, q.issuers, "registry:admin", q.at)
    same("status, asked by itself", refusal.status, 200 if power else 403 if q.identified else 401)
    asked_by = Asked(q.rig, q.world, ADMIN, q.at, None)
    if about is None or not asked_by.identified:
        return []
    lasting = _lasting(q)
    names = Names(q.world, lasting, q.issuers, q.at)
    answer = await asked_by.get("/v1/access-review", urlencode(about))
    same("status", answer.status, 200)
    found = {t["tool_id"]: t for t in answer.json["tools"]}
    same("tools", sorted(found), names.visible)
    for tool_id, tool in found.items():
        same(f"the listed name of {tool_id}", tool["name"], names.listed[tool_id])
    for tool in q.world["tools"]:
        if tool["id"] in q.argument:
            answer = await asked_by.get("/v1/access-review", urlencode([*about, ("tool", tool["id"])]))
            same("status", answer.status, 200)
            allowed, reason, binding = decisions.decide(q.world, lasting, q.issuers, tool, "call", q.at)
            same(f"{tool['id']} is allowed", answer.json["allowed"], allowed)
            same(f"the reason at {tool['id']}", REASONS[answer.json["reason"]], reason)
            if binding is not None:
                same(f"the binding that decides {tool['id']}", answer.json["binding"]["uid"], binding)
    return names.visible


def _lasting(q: Asked) -> Caller:
    """The caller with a token that does not expire and is of the account that there is now."""
    claims: dict[str, Any] = {**q.caller["claims"], "exp": q.at + 1}
    claims.pop("nbf", None)
    parts = claims["sub"].split(":")
    if q.caller["iss"] == worlds.CLUSTER and len(parts) == 4 and q.world["accounts"] is not None:
        uid = q.world["accounts"].get(f"{parts[2]}/{parts[3]}")
        claims["kubernetes.io"] = {"serviceaccount": {"uid": uid}}
    return {"iss": q.caller["iss"], "claims": claims}


def _subject(caller: Caller) -> list[tuple[str, str]] | None:
    """The caller as a question names it; None: there is no such subject, or no token that a review assumes is this."""
    if not isinstance(caller, dict):
        return None
    claims = caller["claims"]
    parts = claims["sub"].split(":")
    scopes = next((claims[c] for c in ("scope", "scp", "roles") if c in claims), None)
    carried = None if scopes is None else scopes if isinstance(scopes, str) else " ".join(scopes)
    if caller["iss"] == worlds.CLUSTER:
        if len(parts) != 4 or not parts[2] or "client_id" in claims:
            return None
        about = [("subject", f"ServiceAccount/{parts[2]}/{parts[3]}")]
    elif claims["sub"].startswith("system:"):
        return None
    else:
        about = [("subject", f"User/{claims['sub']}"), ("issuer", caller["iss"])]
        about += [("group", g) for g in claims.get("groups", ())]
        client = claims.get("azp") or claims.get("client_id")
        about += [("client", client)] if client else []
        carried = carried or ""
    return about if carried is None else [*about, ("scopes", carried)]
