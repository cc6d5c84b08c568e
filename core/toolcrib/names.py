"""Names, scopes and patterns: the grammar that manifests, tokens and calls share.

Patterns are `name`, `server:name` and globs of both (`*`, `?`), split at the first colon, matched whole and
ignoring case. In cluster bindings the server part is `namespace/server`. (DESIGN §3, Patterns.) A server's resources
and its prompts have the names `@resources` and `@prompts`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

TOOL_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
"""What agents see: the character set of MCP tool names (2025-11-25, server/tools)."""
SERVER_NAME = r"^[A-Za-z0-9_.-]{1,63}$"
SCOPE = r"^[A-Za-z0-9]([A-Za-z0-9_.:/-]{0,126}[A-Za-z0-9])?$"
TAG = r"^[^\x00-\x1f\x7f]{1,64}$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
PATTERN = r"^([A-Za-z0-9_.*?-]{1,63}:)?@?[A-Za-z0-9_.*?-]{1,128}$"
CLUSTER_PATTERN = r"^([a-z0-9.*?-]{1,63}/[A-Za-z0-9_.*?-]{1,63}:)?@?[A-Za-z0-9_.*?-]{1,128}$"
CLUSTER_SERVER = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[A-Za-z0-9_.-]{1,63}$"

RESOURCES, PROMPTS = "@resources", "@prompts"
"""Names by which patterns and the authorizer know a server's resources and its prompts. No tool can have them."""

RESERVED_TOOL_NAMES = frozenset({
    ".", "..",  # clients normalise these segments away
    ".well-known", "api", "health", "healthz", "metrics", "oauth", "openapi.json", "readyz", "register",
    "stats", "tools", "v1",  # route words
    "mcp", "v0.1",  # route words to come
})  # fmt: skip
"""Names that no tool may have. A route word is the first segment of a route, or one that stands beside
`/tools/{name}`; `test_every_route_word_is_reserved` derives them from the routes."""

RESERVED_SCOPE_PREFIX = "registry:"
SCOPE_WRITE = "registry:write"
SCOPE_ADMIN = "registry:admin"


def is_reserved_scope(scope: str) -> bool:
    """True for `registry:*`: the registry's own powers, which no Tool may carry."""
    return scope.lower().startswith(RESERVED_SCOPE_PREFIX)


def tool_id(namespace: str, object_name: str) -> str:
    """The id on every route: `namespace/name` of the Tool object."""
    return f"{namespace}/{object_name}"


def part_id(server_id: str, name: str) -> str:
    """The id of what stands for a server's resources or prompts: `namespace/server:@resources`. No tool has a colon in its."""
    return f"{server_id}:{name}"


def is_part(id_: str) -> bool:
    """Whether it is such an id, not a tool's."""
    return ":" in id_


def candidate_id(tool_id: str) -> str:
    """The id of a tool's candidate in the search index: `namespace/name~candidate`. No tool has a tilde in its."""
    return f"{tool_id}~candidate"


def of_candidate(id_: str) -> str:
    """The tool of such an id, or of its own."""
    return id_.partition("~")[0]


def server_of_part(id_: str) -> str:
    """The server, `namespace/name`, of such an id."""
    return id_.partition(":")[0]


def named_by(id_: str) -> str:
    """The name that an id ends with, of a tool or of such a part."""
    return id_.rpartition("/")[2].rpartition(":")[2]


def slug(text: str, limit: int = 56) -> str:
    """A DNS-1123 label made of `text`; `tool` where nothing of it can be kept."""
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].rstrip("-")
    return kept or "tool"


def object_name(server: str | None, name: str) -> str:
    """The name of an imported or registered Tool object: slug + 6 hex of sha256(server:name) (DESIGN §4)."""
    digest = hashlib.sha256(f"{server or ''}:{name}".encode()).hexdigest()[:6]
    return f"{slug(name)}-{digest}"


@lru_cache(maxsize=16_384)
def _glob(pattern: str) -> re.Pattern[str]:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in re.sub(r"\*+", "*", pattern))
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)


def glob_matches(pattern: str, text: str) -> bool:
    """Match the whole of `text`, ignoring case; `*` is any run of characters, `?` any one."""
    if pattern == "*":
        return True
    if "*" not in pattern and "?" not in pattern:
        return pattern.lower() == text.lower()
    if pattern.count("*") > 1:
        return _wildcard(pattern.lower(), text.lower())
    return _glob(pattern).fullmatch(text) is not None


def _wildcard(pattern: str, text: str, never: str | None = None) -> bool:
    """Linear in practice and never worse than len(pattern)·len(text): backtracks to the last `*` only.

    `never` is a character that no `?` matches.
    """
    p = t = 0
    star, mark = -1, 0
    while t < len(text):
        if (
            p < len(pattern)
            and pattern[p] != "*"
            and (pattern[p] == text[t] or (pattern[p] == "?" and text[t] != never))
        ):
            p, t = p + 1, t + 1
        elif p < len(pattern) and pattern[p] == "*":
            star, mark, p = p, t, p + 1
        elif star >= 0:
            mark += 1
            p, t = star + 1, mark
        else:
            return False
    return all(c == "*" for c in pattern[p:])


def glob_covers(outer: str, inner: str) -> bool:
    """Whether every text that the glob `inner` matches is matched by `outer` too; False where in doubt.

    `inner` is read as a text: its `*` may stand for much, so that only a `*` takes it, and its `?` for one character.
    """
    return _wildcard(outer.lower(), inner.lower().replace("*", "\0"), never="\0")


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """One `allow` or `deny` entry, parsed. `namespace` is set only by patterns of cluster bindings."""

    name: str
    server: str | None = None
    namespace: str | None = None

    @classmethod
    def parse(cls, text: str) -> ToolPattern:
        """Parse `name`, `server:name` or `namespace/server:name`; the first colon splits."""
        if ":" not in text:
            return cls(name=text)
        server, name = text.split(":", 1)
        if "/" not in server:
            return cls(name=name, server=server)
        namespace, server = server.split("/", 1)
        return cls(name=name, server=server, namespace=namespace)

    def matches(self, *, namespace: str, server: str | None, name: str) -> bool:
        """Whether the tool is meant; a pattern with a server never matches a tool that has none."""
        if self.server is not None and (server is None or not glob_matches(self.server, server)):
            return False
        if self.namespace is not None and not glob_matches(self.namespace, namespace):
            return False
        return glob_matches(self.name, name)


def covers(outer: ToolPattern, inner: ToolPattern) -> bool:
    """Whether `outer` matches every tool that `inner` can match; False where in doubt."""
    if outer.server is not None and (inner.server is None or not glob_covers(outer.server, inner.server)):
        return False
    if outer.namespace is not None and (
        inner.namespace is None or not glob_covers(outer.namespace, inner.namespace)
    ):
        return False
    return glob_covers(outer.name, inner.name)
