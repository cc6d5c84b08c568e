"""C. A backend's credential never comes back to a caller, and no argument changes a parameter that the author fixed."""

from __future__ import annotations

import base64
import json
import random
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from attack.stage import OK, Stage, code_of, hold, service, text
from registry_harness import binding, tool
from stub_server import Answer
from toolcrib.resources.backends import AuthType, Method
from toolcrib.wire.backends import PublishedAuth, SecretReference
from toolcrib.wire.publish import Credential

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SECRET = SecretReference(namespace="team", name="key", key="token")
STATUSES = (
    200,
    201,
    202,
    203,
    206,
    226,
    299,
    400,
    401,
    403,
    404,
    409,
    418,
    422,
    429,
    451,
    499,
    500,
    502,
    503,
    599,
)


def _escaped(draw: random.Random, value: str) -> str:
    """The text as JSON may write it."""
    return "".join(f"\\u{ord(c):04x}" if draw.random() < 0.5 else "\\/" if c == "/" else c for c in value)


def _encoded(draw: random.Random, value: str) -> str:
    """The text in a form that anybody can read back."""
    raw = value.encode()
    around = text(draw, LETTERS, 0, 3).encode() + raw + text(draw, LETTERS, 0, 3).encode()
    forms = {
        "base64": base64.b64encode(raw).decode(),
        "base64 within": base64.b64encode(around).decode(),
        "base64url": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "percent": "".join(f"%{byte:02X}" for byte in raw),
        "some percent": "".join(f"%{byte:02x}" if draw.random() < 0.5 else chr(byte) for byte in raw),
    }
    return draw.choice(list(forms.values()))


def _echoes(draw: random.Random, secret: str) -> tuple[bytes, str]:
    """A body that repeats the credential, and its media type."""
    kind = draw.choice(
        [
            "value",
            "key",
            "deep",
            "escaped",
            "twice",
            "text",
            "header",
            "long",
            "number",
            "plain json",
            "no type",
            "encoded",
        ]
    )
    if kind == "text":
        return f"debug: token={secret};".encode(), draw.choice(
            ["text/plain", "text/csv", "application/x-log"]
        )
    if kind == "header":
        return f"Authorization: Bearer {secret}\r\n".encode(), "text/plain"
    if kind == "escaped":
        return f'{{"a":"x{_escaped(draw, secret)}y"}}'.encode(), "application/json"
    if kind == "twice":
        return f'{{"a":"{_escaped(draw, secret)}","a":1}}'.encode(), "application/json"
    if kind == "encoded":
        return json.dumps({"log": f"sent {_encoded(draw, secret)} to the tool"}).encode(), "application/json"
    if kind == "no type":
        return json.dumps({"a": secret}).encode(), ""
    value: Any = {
        "value": {"token": secret},
        "key": {secret: 1},
        "deep": [[[{"a": [f"<{secret}>"]}]]],
        "long": {"a": "x" * 20_000 + secret},
        "number": [1, 2, secret],
        "plain json": secret,
    }[kind]
    return json.dumps(value).encode(), draw.choice(["application/json", "application/problem+json"])


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Echoes of generated credentials, then arguments that mean a fixed parameter."""
    for number in range(count):
        (_echoed if number % 2 else _fixed)(stage, draw)
    return count


def _echoed(stage: Stage, draw: random.Random) -> None:
    target = stage.target()
    secret = text(draw, LETTERS + "+/=_-", 12, 60)
    kind = draw.choice([AuthType.BEARER, AuthType.BASIC, AuthType.HEADER])
    value = f"user:{secret}" if kind is AuthType.BASIC else secret
    header = "X-Api-Key" if kind is AuthType.HEADER else None
    auth = PublishedAuth(type=kind, header=header, secret=SECRET)
    target.push(Credential(namespace="team", name="key", key="token", hosts=("svc",), value=value))
    sent = base64.b64encode(value.encode()).decode() if kind is AuthType.BASIC else value
    known = draw.choice([secret, value, sent]) if kind is AuthType.BASIC else secret
    echoes = draw.random() < 0.9
    body, media = _echoes(draw, known if echoes else "harmless")
    status = draw.choice(STATUSES)
    extra = (
        (("X-Debug", known), ("Retry-After", known), ("WWW-Authenticate", known))
        if draw.random() < 0.3
        else ()
    )
    types = (("Content-Type", media),) if media else ()
    stage.backend.answer = lambda asked: Answer(body, status, (*types, *extra))
    target.publish(
        [tool("t", scopes=("s",), backend=service("team", "/", auth=auth))], [binding("bot", ["s"])]
    )
    seen = len(stage.backend.asked)
    answer = target.call("t", {})
    stage.backend.answer = lambda asked: OK
    case = {"status": status, "body": body.decode()[-300:], "auth": kind.value, "answer": answer.text[-300:]}
    got = stage.backend.asked[-1].headers.get((header or "Authorization").lower(), "")
    hold("the backend gets its credential", len(stage.backend.asked) == seen + 1 and sent in got, **case)
    shown = answer.text + json.dumps(list(answer.headers.items())) + _strings(answer.text)
    for form in {secret, value, sent}:
        hold("no answer repeats the credential", form not in shown, form=form, **case)
    if echoes and b'"log"' in body:
        hold("no answer repeats it in another form", json.loads(body)["log"] not in shown, **case)
    if status < 300:
        code = code_of(answer)
        hold(
            "an echo is withheld, and nothing else is",
            (code == "upstream_protocol") == echoes,
            code=code,
            **case,
        )


def _strings(document: str) -> str:
    try:
        return "\n".join(_texts(json.loads(document)))
    except ValueError:
        return document


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in (k, *_texts(v))]
    return [t for v in value for t in _texts(v)] if isinstance(value, list) else [str(value)]


def _fixed(stage: Stage, draw: random.Random) -> None:
    target = stage.target()
    name = draw.choice(["tenant", "api-version", "a.b", "q[x]", "scope", "Format", "x y"])
    fixed = text(draw, "abcdef", 1, 8)
    written = draw.choice(
        [quote(name, safe=""), name.replace(" ", "+"), "".join(f"%{ord(c):02x}" for c in name)]
    )
    argument = draw.choice(
        [name, name.upper(), name.lower(), f" {name}", f"{name} ", name + "[]", name + "[0]", name + "\0", name.replace(".", "_"),
         quote(name), "".join(f"%{ord(c):02X}" for c in name), f"{name}&{name}", f"x&{name}", f"x=1&{name}", f"{name}=", f"{name};x",
         f"{name}#", name.replace("e", "\u0435"), "other"]
    )  # fmt: skip
    method = draw.choice([Method.GET, Method.DELETE])
    backend = service("team", f"/p?{written}={fixed}", method=method)
    one = tool("t", scopes=("s",), backend=backend, input_schema={"type": "object"})
    target.publish([one], [binding("bot", ["s"])])
    seen = len(stage.backend.asked)
    value: Any = draw.choice(["evil", ["evil", "evil"], 1, True, f"1&{name}=evil", f"#&{name}=evil"])
    answer = target.call("t", {argument: value})
    case = {"path": backend.path, "argument": argument, "value": value, "answer": answer.text}
    if answer.status_code != 200:
        hold("it is refused as an argument", code_of(answer) == "invalid_arguments", **case)
        hold("a harmless argument is sent", argument != "other", **case)
        return
    hold("the backend is asked once", len(stage.backend.asked) == seen + 1, **case)
    query = urlsplit(stage.backend.asked[-1].path).query
    for separated in (query, query.replace(";", "&")):
        pairs = parse_qsl(separated, keep_blank_values=True)
        same = [v for k, v in pairs if _as_servers_read(k) == _as_servers_read(name)]
        hold("the fixed parameter stands once, as fixed", same == [fixed], query=query, **case)


def _as_servers_read(name: str) -> str:
    plain = name.strip().split("\0")[0].split("[")[0]
    return plain.replace(".", "_").replace(" ", "_").casefold()
