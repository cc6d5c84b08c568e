"""AccessRequest: an agent asks people for one tool. It grants nothing; the binding that answers it is written by a person."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from toolcrib import names
from toolcrib.resources.bindings import Subject, SubjectKind
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import API_VERSION, DnsSubdomain, Model, ObjectMeta, Rule
from toolcrib.resources.tools import DIGEST
from toolcrib.text import escape

ENABLED = ("toolcrib.dev/requests", "enabled")
"""Label of a Namespace whose tools may be asked for."""
REJECTED = "toolcrib.dev/rejected"
"""Annotation: why a request was rejected."""
MOST_WORDS = 280
"""Characters of `why`, as the agent writes it."""
MOST_REASON = 512
OPEN_EACH = 3
"""Open requests of one subject, in all namespaces."""
OPEN_ALL = 100
"""Open requests in a namespace. Decided ones are as many as people decide in a week."""
OPEN_TENANT = OPEN_ALL // 2
"""Open requests of one tenant's subjects at most; never more than is still free, so that the next tenant finds a place."""
KEPT_SECONDS = 7 * 86_400.0
LONGEST_SECONDS = 86_400.0
"""Of an approval."""

_MARKUP = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&`"})


class AccessRequestSpec(Model):
    """What is asked for, and by whom. It never changes."""

    tool: DnsSubdomain = Field(description="The Tool object of this namespace that is asked for.")
    digest: str = Field(
        pattern=DIGEST,
        max_length=71,
        description="status.approvalDigest of the Tool when it was asked for. If it changes, the request cannot be approved.",
    )
    subject: Subject = Field(description="Who asks, as its verified token says. It is never a Group.")
    account_uid: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        alias="accountUID",
        description="UID of the ServiceAccount that asks. The request goes with it.",
    )
    why: str = Field(
        default="",
        max_length=2_800,
        description="The agent's own words, which nobody checked. Hidden characters and markup are escaped.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self == oldSelf", "the spec of an AccessRequest cannot be changed"),
        Rule(
            "!(self.subject.kind in ['Group', 'Agent'])",
            "subject must be a ServiceAccount, OAuthClient or User",
            lambda s: s.subject.kind not in (SubjectKind.GROUP, SubjectKind.AGENT),
        ),
    )


class AccessRequestStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
    )
    conditions: Conditions = Field(default=(), description="Decided.")


class AccessRequest(Model):
    """An AccessRequest object as it stands in the cluster or in a folder."""

    api_version: str = ""
    kind: str = "AccessRequest"
    metadata: ObjectMeta = Field(strict=False)
    spec: AccessRequestSpec
    status: AccessRequestStatus | None = None

    @property
    def tool_id(self) -> str:
        """The tool that is asked for."""
        return names.tool_id(self.metadata.namespace or "default", self.spec.tool)

    @property
    def rejection(self) -> str | None:
        """Why it was rejected; None: it was not."""
        return self.metadata.annotations.get(REJECTED)


def words(why: str) -> str:
    """An agent's words as people may see them: whatever hides, moves or marks up text is escaped."""
    return escape(why.replace("\\", "\\\\")).translate(_MARKUP)


def manifest(
    name: str, tool_id: str, digest: str, subject: Subject, account_uid: str | None, why: str
) -> dict[str, Any]:
    """The request of one subject for one tool, in the tool's namespace."""
    namespace, _, tool = tool_id.partition("/")
    spec = AccessRequestSpec(
        tool=tool, digest=digest, subject=subject, account_uid=account_uid, why=words(why[:MOST_WORDS])
    )
    return {
        "apiVersion": API_VERSION,
        "kind": "AccessRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec.model_dump(by_alias=True, mode="json", exclude_none=True),
    }


def binding(
    request: AccessRequest, allow: str, server: str | None, scopes: tuple[str, ...], until: str
) -> dict[str, Any]:
    """The binding that approves a request: for its subject alone, for one tool by its name, until then. The request owns it.

    Args:
        request: as it stands in the cluster.
        allow: the tool's name.
        server: the tool's server, where it has one.
        scopes: the tool's.
        until: when it ends (RFC 3339).
    """
    spec: dict[str, Any] = {
        "subjects": [request.spec.subject.model_dump(by_alias=True, mode="json", exclude_none=True)],
        "scopes": list(scopes),
        "tools": {"allow": [allow if server is None else f"{server}:{allow}"]},
        "expiresAt": until,
    }
    owner = {
        "apiVersion": API_VERSION, "kind": "AccessRequest", "name": request.metadata.name, "uid": request.metadata.uid,
    }  # fmt: skip
    return {
        "apiVersion": API_VERSION,
        "kind": "AgentScopeBinding",
        "metadata": {
            "name": request.metadata.name,
            "namespace": request.metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
