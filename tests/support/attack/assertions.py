"""C. Call assertions: each call of a Service proves who calls, for one request, once; nothing else passes for one."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attack.stage import Backend, Stage, Target, hold, remembering, service, text
from registry_harness import binding, tool
from stub_server import Asked
from toolcrib.resources.backends import Method
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib_cli.example_tools.assertion import CallAssertions

ISSUER = "https://registry.test"
HEADER = "toolcrib-assertion"
_FORGED = ec.generate_private_key(ec.SECP256R1())


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Calls of generated requests, verified by the file that tool authors copy; then the same, forged."""
    target = stage.target("assertions", egress={"loopback": True}, assertion={"issuer": ISSUER})
    keys = jwt.PyJWKClient(f"{target.url}/.well-known/jwks.json")
    seen: set[str] = set()
    with remembering() as elsewhere:
        for number in range(count):
            account = draw.choice(["team/bot", "north/other"])
            one = _tool(draw, number, elsewhere)
            bindings = [
                binding(name, ["s"], account_namespace=namespace)
                for namespace, name in (("team", "bot"), ("north", "other"))
            ]
            target.publish([one], bindings)
            asked = _called(stage, draw, target, elsewhere, one, account)
            sent = [value for name, value in asked.fields if name.lower() == HEADER]
            assert one.backend is not None
            case = {"backend": one.backend.model_dump(exclude_defaults=True, mode="json"), "sent": len(sent)}
            hold(
                "an assertion goes with calls of Services, elsewhere where it is asked for, and once",
                len(sent) == _wanted(one.backend),
                **case,
            )
            if sent:
                _verified(draw, keys, sent[0], asked, one, account, seen, target)
    return count


def _wanted(backend: PublishedBackend) -> int:
    return int(backend.service_name is not None if backend.assertion is None else backend.assertion)


def _tool(draw: random.Random, number: int, elsewhere: Backend) -> PublishedTool:
    path = draw.choice(["/", "/a/{p}", "/a?x=1&y=%20", "/{p}/b?z=1"])
    method = draw.choice(list(Method))
    asserted = draw.choice([None, None, True, False])
    if draw.random() < 0.6:
        backend = service("team", path, method=method, assertion=asserted)
    else:
        url = f"http://127.0.0.1:{elsewhere.port}{path}"
        backend = PublishedBackend(url=url, method=method, assertion=asserted)
    return tool(f"t{number}", scopes=("s",), backend=backend)


def _called(
    stage: Stage, draw: random.Random, target: Target, elsewhere: Backend, one: PublishedTool, account: str
) -> Asked:
    assert one.backend is not None
    behind = elsewhere if one.backend.url else stage.backend
    before = len(behind.asked)
    arguments = {"p": text(draw, "abc ü%+&=", 1, 8).strip() or "p", "q": text(draw, "abc ü%+&=", 0, 9)}
    answer = target.http.post(
        f"{target.url}/tools/{one.name}",
        # what a caller says of assertions goes nowhere
        headers={**target.auth(account), "Toolcrib-Assertion": "forged", "Content-Type": "application/json"},
        content=json.dumps(arguments),
    )
    hold(
        "the call is made once",
        answer.status_code == 200 and len(behind.asked) == before + 1,
        answer=answer.text,
    )
    return behind.asked[-1]


def _verified(
    draw: random.Random,
    keys: jwt.PyJWKClient,
    sent: str,
    asked: Asked,
    one: PublishedTool,
    account: str,
    seen: set[str],
    target: Target,
) -> None:
    claims = CallAssertions(ISSUER, keys, [one.tool_id]).verify(sent, asked.method, asked.path, asked.body)
    case = {"claims": claims, "asked": str(asked)}
    hold("it names the caller", claims["sub"] == "system:serviceaccount:" + account.replace("/", ":"), **case)
    hold(
        "it is for this tool alone, and ends within 60 s",
        claims["aud"] == one.tool_id and 0 < claims["exp"] - claims["iat"] <= 60,
        **case,
    )
    hold("no two are the same", claims["jti"] not in seen, **case)
    seen.add(claims["jti"])
    held = CallAssertions(ISSUER, keys, [one.tool_id])
    held.verify(sent, asked.method, asked.path, asked.body)
    forgeries = {
        "replayed": (sent, asked.method, asked.path, asked.body),
        "another body": (sent, asked.method, asked.path, asked.body + b" "),
        "another path": (sent, asked.method, asked.path + "&admin=1", asked.body),
        "another method": (sent, "PURGE", asked.path, asked.body),
        **{
            name: (made, asked.method, asked.path, asked.body)
            for name, made in _forged(draw, keys, sent, claims)
        },
    }
    for name, (made, method, path, body) in forgeries.items():
        try:
            verifier = held if name == "replayed" else CallAssertions(ISSUER, keys, [one.tool_id])
            verifier.verify(made, method, path, body)
        except jwt.PyJWTError:
            continue
        hold("a forged or used assertion is refused", False, forgery=name, **case)
    hold(
        "for another tool it is refused",
        _refused(CallAssertions(ISSUER, keys, ["team/else"]), sent, asked),
        **case,
    )
    answer = target.http.get(target.url + "/", headers={"Authorization": f"Bearer {sent}"})
    hold(
        "it is no token",
        not answer.json().get("tools") and not answer.json().get("authenticated"),
        answer=answer.text,
        **case,
    )


def _refused(held: CallAssertions, sent: str, asked: Asked) -> bool:
    try:
        held.verify(sent, asked.method, asked.path, asked.body)
    except jwt.PyJWTError:
        return True
    return False


def _forged(
    draw: random.Random, keys: jwt.PyJWKClient, sent: str, claims: dict[str, Any]
) -> list[tuple[str, str]]:
    """The same claims with another signature, or other claims."""
    head = {k: v for k, v in jwt.get_unverified_header(sent).items() if k in ("kid", "typ")}
    public = keys.get_signing_key_from_jwt(sent).key.public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    other = {**claims, "jti": text(draw, "abcdef", 20, 20)}
    lower, _, signature = sent.rpartition(".")
    return [
        ("another key", jwt.encode(other, _FORGED, "ES256", headers=head)),
        ("no algorithm", jwt.encode(other, "", "none", headers=head)),
        (
            "the public key as a secret",
            jwt.encode(other, hashlib.sha256(public).digest(), "HS256", headers=head),
        ),
        (
            "a signature of something else",
            f"{jwt.encode(other, _FORGED, 'ES256', headers=head).rpartition('.')[0]}.{signature}",
        ),
        ("no signature", lower + "."),
    ]
