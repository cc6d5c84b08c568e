"""MCP servers in other programs' words: what of them a ToolServer can say, and what it cannot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from toolcrib import names
from toolcrib.resources.addresses import URL
from toolcrib.resources.backends import FORBIDDEN_HEADERS, HEADER, AuthType

_VARIABLE = re.compile(r"\$\{[^}]*\}|\{([A-Za-z0-9_.-]+)\}")
_SCHEMES = {"bearer": AuthType.BEARER, "basic": AuthType.BASIC}
_MIXED = re.compile(r"(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]+", re.IGNORECASE)
_RANDOM = 16
"""Characters of a path's segment in parts that mix letters and digits, from which on it looks random: `v2` does not."""
FILL_IN = "FILL-IN"
_SECRET = re.compile(
    r"token|key|secret|pass|pwd|auth|cred|header|bearer|cookie|signature|session|connection|pat$",
    re.IGNORECASE,
)
_SECRET_WORDS = frozenset({"p", "pw", "pin", "pins", "otp", "totp", "pat", "jwt", "psk", "sas", "sig", "dsn"})
"""Names of secrets that are parts of many other words: they count as a whole word of an option's name (`--userPin`)."""
_OPTION = re.compile(r"--[A-Za-z][\w.-]*(=.*)?|-[A-Za-z]", re.DOTALL)
_WITH_VALUE = re.compile(r"(?:[-/]+([\w.-]+)[=:]|([\w.-]+)=)(?=.)", re.DOTALL)
_ONE_DASH = re.compile(
    r"-(package|path|port|prefix|profile|project|p|pass|passwd|password|passphrase|passcode|pat|pin|psk|pw|pwd)",
    re.IGNORECASE,
)
"""Whole options with one dash. Other words that begin with `-p` may be that option and its value (`-pSECRET`)."""
_HEADER_VALUE = re.compile(r"authorization|bearer |basic ", re.IGNORECASE)
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_MOST_WORDS, _LONGEST_WORD = 64, 4096
_OWN_HEADERS = ("accept", "content-type", "user-agent")
"""Set by the registry itself in each request."""


@dataclass(frozen=True, slots=True)
class Credential:
    """How a server wants to be authenticated to; the value is not kept."""

    type: AuthType
    header: str = "Authorization"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of a source.

    Attributes:
        name: as the source has it.
        url: its MCP endpoint; empty if it has none.
        command: what starts it, where it has no endpoint; arguments that may hold a secret are `FILL_IN`.
        env: names of its environment variables; values are not kept.
        credential: how it is authenticated to.
        notes: what the manifest does not carry, and why.
        left_out: why there can be no manifest; empty: there is one.
    """

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    credential: Credential | None = None
    notes: tuple[str, ...] = ()
    left_out: str = ""

    def noting(self, *notes: str) -> FoundServer:
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))


def of_url(url: str, name: str | None = None) -> FoundServer:
    """The server at an address; it is not asked."""
    parts = urlsplit(url)
    return _addressed(FoundServer(name or _name_of_host(parts.hostname or "")), url)


def of_clients(servers: Mapping[str, Any]) -> Iterator[FoundServer]:
    """The servers of a client's `mcpServers` (or `servers`)."""
    for name, entry in servers.items():
        yield _of_entry(name, entry)


def of_server_json(document: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[FoundServer]:
    """The remotes of a server.json (MCP Registry, schema 2025-12-11).

    Args:
        document: the file.
        values: of the variables in its addresses.
    """
    full = document["name"]
    name = full.rsplit("/", 1)[-1]
    remotes = [r for r in _list(document.get("remotes")) if isinstance(r, dict)]
    usable = [r for r in remotes if r.get("type") == "streamable-http"]
    for number, remote in enumerate(usable):
        found = FoundServer(name if number == 0 else f"{name}-{number + 1}")
        url, missing = _filled(str(remote.get("url", "")), remote.get("variables"), values)
        if missing:
            yield replace(
                found, left_out=f"its address needs {_names(missing)}; add --set {missing[0]}=VALUE"
            )
            continue
        found = _addressed(found, url)
        yield _authenticated(found, _header_names(remote.get("headers")))
    if not usable:
        kinds = sorted({str(r.get("type")) for r in remotes})
        why = f"its remotes are {_names(kinds)}" if kinds else "it has no remotes, only packages to start"
        yield FoundServer(name, left_out=f"{why}; a ToolServer needs one of type streamable-http")


def _of_entry(name: str, entry: Any) -> FoundServer:
    found = FoundServer(name)
    if not isinstance(entry, dict):
        return replace(found, left_out="its entry is not an object")
    url = entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl")
    if not url:
        if entry.get("command"):
            return _started(found, entry)
        return replace(found, left_out="its entry has neither url nor command")
    if not isinstance(url, str):
        return replace(found, left_out="its url is not a string")
    if str(entry.get("type", entry.get("transport", ""))).lower() == "sse":
        return replace(
            found, left_out="it speaks HTTP+SSE, which MCP replaced; use its Streamable HTTP endpoint"
        )
    found = _addressed(found, url)
    if entry.get("disabled") is True:
        found = found.noting("It is disabled in the source.")
    headers = entry.get("headers")
    return _authenticated(found, dict.fromkeys(headers, "") | headers if isinstance(headers, dict) else {})


def _started(found: FoundServer, entry: Mapping[str, Any]) -> FoundServer:
    words, env = [entry["command"], *_list(entry.get("args"))], entry.get("env")
    if not all(isinstance(word, str) and "\x00" not in word for word in words) or len(words) > _MOST_WORDS:
        return replace(
            found, left_out=f"its command is not a program with at most {_MOST_WORDS - 1} arguments"
        )
    command: list[str] = []
    for number, word in enumerate(words):
        telling = _shell_tells(word) or (
            number > 0 and (_may_tell(word) or _is_value(words[number - 1], word))
        )
        command.append(FILL_IN if telling or len(word) > _LONGEST_WORD else word)
    names_ = [str(name) for name in env] if isinstance(env, dict) else []
    usable = [name for name in names_ if re.fullmatch(_ENV_NAME, name)][:_MOST_WORDS]
    found = replace(found, command=tuple(command), env=tuple(usable)).noting(
        "It is a program. Only `toolcrib up --allow-stdio` starts it; a cluster refuses it."
    )
    if FILL_IN in command:
        found = found.noting(f"Replace {FILL_IN}: the argument may hold a secret. Prefer a variable of env.")
    if len(usable) < len(names_):
        found = found.noting("Variables whose names are not letters, digits and _ are left out.")
    return found.noting("It is disabled in the source.") if entry.get("disabled") is True else found


def _may_tell(word: str) -> bool:
    """Whether an argument may hold a secret: it looks random, names one with a value, or has a user or a query."""
    return bool(_looks_random(word) or ("=" in word and _SECRET.search(word)) or _VARIABLE.search(word)
                or ("://" in word and ("@" in word or "?" in word)) or _HEADER_VALUE.search(word)
                or ((named := _WITH_VALUE.match(word)) and _names_secret(named[1] or named[2]))
                or _holds_password(word))  # fmt: skip


def _shell_tells(word: str) -> bool:
    """Return True if a command line within one argument (`sh -c "…"`) may hold a secret."""
    parts = word.split()
    if len(parts) < 2:
        return False
    return any(map(_may_tell, parts[1:])) or any(map(_is_value, parts, parts[1:]))


def _is_value(option: str, word: str) -> bool:
    """Return True if the argument may be the value of an option that names a secret."""
    if re.fullmatch(r"-.*|/\w+", option, re.DOTALL) is None or "=" in option or not _names_secret(option):
        return False
    # a secret may begin with - too: only what looks like an option is one
    return _OPTION.fullmatch(word) is None


def _names_secret(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return _SECRET.search(name) is not None or any(word.lower() in _SECRET_WORDS for word in words)


def _holds_password(word: str) -> bool:
    """Return True for `-pSECRET`, as mysql reads it."""
    return word[:2] in ("-p", "-P") and _ONE_DASH.fullmatch(word) is None


def _addressed(found: FoundServer, url: str) -> FoundServer:
    if found.left_out:
        return found
    if unfilled := _VARIABLE.search(url):
        return replace(
            found,
            left_out=f"its address holds the variable {unfilled[0]}; write the address out in the source",
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https"):
        return replace(found, left_out="its address is not an http or https URL")
    place = f"[{host}]" if ":" in host else host
    plain = f"{parts.scheme}://{place}{f':{port}' if port is not None else ''}{parts.path}"
    if re.fullmatch(URL, plain) is None:
        return replace(found, left_out="its address has characters that a URL must encode")
    if parts.username is not None or parts.password is not None:
        found = found.noting("The user in its address is left out: put it into the Secret (auth type Basic).")
    if parts.query or parts.fragment:
        found = found.noting("What follows ? in its address is left out, since it may hold a secret.")
    if any(_looks_random(segment) for segment in parts.path.split("/")):
        found = found.noting(
            "The path of its address may hold a secret. Everyone who can read the ToolServer can read it. "
            "If it is a secret, use an endpoint that takes it in a header."
        )
    return replace(found, url=plain)


def _looks_random(segment: str) -> bool:
    """Whether it may be a token or a UUID, and is no word with a version."""
    parts = re.split(r"[^A-Za-z0-9]+", segment)
    return sum(len(part) for part in parts if _MIXED.fullmatch(part)) >= _RANDOM


def _authenticated(found: FoundServer, headers: Mapping[str, Any]) -> FoundServer:
    wanted = {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}
    usable = [n for n in wanted if re.fullmatch(HEADER, n) and not _is_of_connection(n.lower())]
    chosen = next((n for n in usable if n.lower() == "authorization"), usable[0] if usable else None)
    if chosen is None:
        return found
    others = [n for n in wanted if n != chosen]
    if others:
        found = found.noting(
            f"A ToolServer sends one header of its own; {_names(others)} cannot be carried over."
        )
    if chosen.lower() != "authorization":
        return replace(found, credential=Credential(AuthType.HEADER, chosen))
    scheme = str(wanted[chosen] or "Bearer").split(" ", 1)[0].lower()
    return replace(found, credential=Credential(_SCHEMES.get(scheme, AuthType.HEADER), chosen))


def _is_of_connection(header: str) -> bool:
    """Whether a manifest may not name it."""
    return header.startswith("mcp-") or header in FORBIDDEN_HEADERS


def _header_names(headers: Any) -> dict[str, str]:
    return {
        str(h["name"]): str(h.get("value") or "")
        for h in _list(headers)
        if isinstance(h, dict) and "name" in h
    }


def _filled(url: str, variables: Any, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """The address with its variables, and the names of those that have no value."""
    declared = variables if isinstance(variables, dict) else {}
    missing: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[1] or ""
        one = declared.get(name)
        default = one.get("default") or one.get("value") if isinstance(one, dict) else None
        if name and (given := values.get(name, default)) is not None:
            return str(given)
        missing.append(name or found[0])
        return found[0]

    return _VARIABLE.sub(value, url), missing


def _name_of_host(host: str) -> str:
    """`github` of mcp.github.com: the label before the last, or the host itself."""
    labels = [label for label in host.split(".") if label not in ("www", "mcp", "api")]
    if not labels or re.fullmatch(r"[0-9.]+|.*:.*", host):
        return names.slug(host)
    return labels[-2] if len(labels) > 1 else labels[0]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(given: list[str]) -> str:
    return ", ".join(given)
