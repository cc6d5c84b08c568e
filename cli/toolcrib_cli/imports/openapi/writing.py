"""Tools as text to review."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml

from toolcrib.resources.backends import AuthType
from toolcrib.text import escape, truncate
from toolcrib_cli.imports.openapi.importing import Result
from toolcrib_cli.imports.openapi.security import Scheme

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


_MOST_HOSTS = 20


class _Dumper(_Base):  # type: ignore[misc]
    """Without anchors: each manifest is read by itself."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def documents(result: Result, namespace: str) -> Iterator[str]:
    """What is to be made first, the Tools, and a comment for each operation that was left out."""
    yield "".join(f"# {line}\n" for line in _head(result, namespace))
    for manifest in result.manifests:
        yield yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    left_out = [
        *result.left_out,
        *((f"{where}, {what}", why) for where, what, why in result.parameters_left_out),
    ]
    if left_out:
        yield "".join(
            f"# Left out: {escape(truncate(what, 300))}: {escape(truncate(why, 200))}.\n"
            for what, why in left_out
        )


def _head(result: Result, namespace: str) -> Iterator[str]:
    count = len(result.manifests)
    yield f"{count} {'Tool' if count == 1 else 'Tools'} of server {result.name}. Review scopes and descriptions before you apply them."
    urls = [manifest["spec"]["backend"]["http"].get("url") for manifest in result.manifests]
    # an operation may have a server of its own
    if hosts := dict.fromkeys(urlsplit(url).netloc for url in urls if url is not None):
        named = ", ".join(escape(host) for host in list(hosts)[:_MOST_HOSTS])
        more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
        yield f"egress.allow must list {named}{more}."
    if result.unusable:
        named = ", ".join(escape(truncate(name, 64)) for name in sorted(result.unusable)[:5])
        yield f"No tool can send the credential of the security scheme {named}: these calls go without it."
    for name, scheme in result.secrets.items():
        yield from _secret(name, scheme, result, namespace)


def _secret(name: str, scheme: Scheme, result: Result, namespace: str) -> Iterator[str]:
    what = {
        AuthType.BEARER: "the token, without Bearer",
        AuthType.BASIC: "user:password",
        AuthType.HEADER: f"the value of header {scheme.header}",
    }[scheme.type]
    place = result.place
    parts = urlsplit(place.base)
    host = place.service[0] if place.service is not None else f"{parts.scheme}://{parts.netloc}"
    yield f"Security scheme {escape(truncate(scheme.name, 64))}: create this Secret with {what}; keep it out of Git."
    yield "  apiVersion: v1"
    yield "  kind: Secret"
    yield f'  metadata: {{name: {name}, namespace: {namespace}, labels: {{toolcrib.dev/backend-credential: "true"}},'
    yield f'    annotations: {{toolcrib.dev/hosts: "{escape(host)}"}}}}'
    yield '  stringData: {credential: ""}'
