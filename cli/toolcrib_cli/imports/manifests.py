"""Manifests as text to review: what must be chosen or filled in stands in a comment beside it. Pure.

Names and addresses come from files of other people: each is written as a quoted string, and escaped in comments.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from toolcrib import names
from toolcrib.resources.backends import AuthType
from toolcrib.resources.meta import API_VERSION
from toolcrib.text import escape, truncate
from toolcrib_cli.imports.allowlists import Allowlist
from toolcrib_cli.imports.servers import Credential, FoundServer

SECRET_KEY = "credential"
_LIMIT = 63
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""What YAML 1.1 or 1.2 reads as something else than text."""


def of_servers(servers: Iterable[FoundServer], namespace: str, scopes: Sequence[str] = ()) -> list[str]:
    """A ToolServer for each, after the Secret that it needs; a comment for each that is left out.

    Args:
        servers: in the order of the source.
        namespace: of all manifests.
        scopes: that open every tool; none: `NAME:use` of the server.
    """
    found: list[str] = []
    taken: Counter[str] = Counter()
    for server in servers:
        if server.left_out:
            found.append(_left_out("server", server.name, server.left_out))
            continue
        name = _free(names.slug(server.name, _LIMIT), taken)
        if server.credential is not None:
            found.append(_secret(name, namespace, server.url, server.credential))
        if server.env:
            found.append(_environment(name, namespace, server.env))
        found.append(_server(name, namespace, server, scopes or (_scope(name),)))
    return found


def of_allowlists(lists: Iterable[Allowlist], namespace: str, scopes: Sequence[str] = ()) -> list[str]:
    """An AgentScopeBinding for each that is not left out, else a comment. Without `scopes` they must be chosen.

    One that is about every account comes after those of agents: its name makes room for theirs.
    """
    found: list[str] = []
    taken: Counter[str] = Counter()
    for one in lists:
        if one.left_out:
            found.append(_left_out("agent", one.agent, one.left_out))
        else:
            found.append(_binding(_free(one.account or "every-account", taken), namespace, one, scopes))
    return found


def _scope(name: str) -> str:
    scope = f"{name}:use"
    # registry:* scopes are the registry's own powers
    return f"mcp-{scope}" if names.is_reserved_scope(scope) else scope


def _free(wanted: str, taken: Counter[str]) -> str:
    """The name, or one with a number where it is taken."""
    name, number = wanted, 1
    while taken[name]:
        number += 1
        end = f"-{number}"
        name = wanted[: _LIMIT - len(end)].rstrip("-") + end
    taken[name] += 1
    return name


def _server(name: str, namespace: str, server: FoundServer, scopes: Sequence[str]) -> str:
    notes = (*((f"{server.name} in the source.",) if server.name != name else ()), *server.notes)
    parts = urlsplit(server.url)
    lines = [
        *_head("ToolServer", name, namespace, notes),
        "spec:",
        "  mcp:",
    ]
    if server.command:
        lines.append(f"    command: {_list(server.command)}")
    else:
        lines.append(f"    url: {_quoted(server.url)}  # egress.allow must list {escape(parts.netloc)}")
    if server.env:
        lines.append("    env:")
        reference = "{{name: {}-env, key: {}}}"
        lines += [
            f"      - {{name: {_plain(each)}, secretKeyRef: {reference.format(name, _plain(each))}}}"
            for each in server.env
        ]
    if (credential := server.credential) is not None:
        header = f", header: {_quoted(credential.header)}" if credential.type is AuthType.HEADER else ""
        reference = f"{{name: {name}-credential, key: {SECRET_KEY}}}"
        lines.append(f"    auth: {{type: {credential.type.value}{header}, secretKeyRef: {reference}}}")
    lines += [
        "  defaults:",
        f"    scopes: {_list(scopes)}  # every holder of one of these can call every tool of the server",
    ]
    return "\n".join(lines) + "\n"


def _secret(name: str, namespace: str, url: str, credential: Credential) -> str:
    parts = urlsplit(url)
    what = {
        AuthType.BEARER: f"the token of header {credential.header}, without Bearer",
        AuthType.BASIC: "user:password",
        AuthType.HEADER: f"the value of header {credential.header}",
    }[credential.type]
    lines = [
        *_head("Secret", f"{name}-credential", namespace, (), api_version="v1"),
        '  labels: {toolcrib.dev/backend-credential: "true"}',
        f"  annotations: {{toolcrib.dev/hosts: {_quoted(f'{parts.scheme}://{parts.netloc}')}}}",
        "stringData:",
        f'  {SECRET_KEY}: ""  # {escape(what)}; keep it out of Git',
    ]
    return "\n".join(lines) + "\n"


def _environment(name: str, namespace: str, env: Sequence[str]) -> str:
    lines = [
        *_head(
            "Secret",
            f"{name}-env",
            namespace,
            ("Variables of the program. Keep their values out of Git.",),
            api_version="v1",
        ),
        '  labels: {toolcrib.dev/backend-credential: "true"}',
        "stringData:",
        *(f'  {_plain(each)}: ""' for each in env),
    ]
    return "\n".join(lines) + "\n"


def _binding(name: str, namespace: str, one: Allowlist, scopes: Sequence[str]) -> str:
    notes = [*([f"{one.agent} in the source."] if one.agent != name else []), *one.notes]
    grants = one.allow is not None
    if not grants:
        whom = "the agent" if one.account else "an agent"
        notes.append(f"It only denies. Other bindings decide what {whom} may use.")
    lines = [
        *_head("AgentScopeBinding", name, namespace, notes),
        "spec:",
        "  subjects:",
        *_subject(one.account),
    ]
    if grants:
        advice = (
            "" if scopes else "  # choose: the scopes of these tools, as their Tools or ToolServers have them"
        )
        lines.append(f"  scopes: {_list(scopes)}{advice}")
    if one.allow is not None or one.deny is not None:
        lines.append("  tools:")
        lines += [
            f"    {field}: {_list(given)}" for field in ("allow", "deny") if (given := getattr(one, field))
        ]
    if one.servers is not None:
        lines.append(f"  servers: {_list(one.servers)}")
    return "\n".join(lines) + "\n"


def _subject(account: str | None) -> list[str]:
    if account is not None:
        advice = "the agent's account; add namespace if it has another"
        return [f"    - {{kind: ServiceAccount, name: {_plain(account)}}}  # {advice}"]
    return [
        "    # fill in the issuer of the cluster: kubectl get --raw /.well-known/openid-configuration shows it",
        '    - {kind: Group, name: "system:serviceaccounts", issuer: ""}',
    ]


def _head(
    kind: str, name: str, namespace: str, notes: Sequence[str], *, api_version: str = API_VERSION
) -> list[str]:
    return [
        *(f"# {escape(truncate(note, 400))}" for note in notes),
        f"apiVersion: {api_version}",
        f"kind: {kind}",
        "metadata:",
        f"  name: {_plain(name)}",
        f"  namespace: {_plain(namespace)}",
    ]


def _left_out(what: str, name: str, why: str) -> str:
    return f"# Left out: {what} {escape(truncate(name, 80))}: {escape(truncate(why, 400))}.\n"


def _plain(name: str) -> str:
    """A name in the manner of manifests, quoted where YAML would read a number or a truth value."""
    safe = re.fullmatch(r"[a-z][a-z0-9-]*", name) and name not in _WORDS
    return name if safe else _quoted(name)


def _quoted(text: str) -> str:
    """A string that YAML reads as it is: JSON's escapes are a part of YAML's (YAML 1.2.2, section 5.7)."""
    return json.dumps(text)


def _list(given: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, given))}]"
