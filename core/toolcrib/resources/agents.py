"""Agent: who may be stopped by one field, by the identities that the agent has."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from toolcrib.resources.backends import URL
from toolcrib.resources.bindings import Subject, SubjectKind
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import DnsSubdomain, ListOf, Model, ObjectMeta, Rule

MODE = r"^(static|dynamic|cached|batched|hybrid|auto)$"
TOOL_ID = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

_OUTSIDE = (SubjectKind.OAUTH_CLIENT, SubjectKind.USER)


class AgentModel(Model):
    """The model that an agent talks to."""

    name: str = Field(min_length=1, max_length=256, description="Its name at the endpoint.")
    base_url: str | None = Field(
        default=None,
        alias="baseURL",
        pattern=URL,
        max_length=2048,
        description="The OpenAI-compatible endpoint.",
    )


class AgentSpec(Model):
    """The identities of an agent, and whether they get anything."""

    service_account_name: DnsSubdomain | None = Field(
        default=None,
        description="The ServiceAccount of this namespace that the agent runs as; the Agent's own name if absent.",
    )
    subjects: Annotated[tuple[Subject, ...], ListOf(1, 16, "atomic")] | None = Field(
        default=None,
        description="Further identities of the agent: OAuth clients and users. Naming one takes the verb equip on it.",
    )
    suspended: bool = Field(
        default=False,
        description="true: these identities get nothing, on every replica, wherever the agent runs. Ending it takes the verb"
        " resume on the Agent.",
    )
    reason: str | None = Field(
        default=None, min_length=1, max_length=1024, description="Why it is suspended, for people."
    )
    mode: str | None = Field(
        default=None,
        pattern=MODE,
        max_length=16,
        description="How the agent uses tools: static, dynamic, cached, batched, hybrid or auto. For people; nothing acts on it.",
    )
    core: (
        Annotated[tuple[Annotated[str, Field(pattern=TOOL_ID, max_length=317)], ...], ListOf(1, 32)] | None
    ) = Field(
        default=None,
        description="Ids of tools that the agent always has at hand. For people; nothing acts on it, and it grants nothing.",
    )
    model: AgentModel | None = Field(
        default=None, description="The model that the agent talks to. For people; nothing acts on it."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.subjects) || self.subjects.all(s, s.kind in ['OAuthClient', 'User'])",
            "subjects are OAuthClients and Users; the ServiceAccount is serviceAccountName",
            lambda a: all(s.kind in _OUTSIDE for s in a.subjects or ()),
        ),
        Rule(
            "has(self.serviceAccountName) == has(oldSelf.serviceAccountName)"
            " && (!has(self.serviceAccountName) || self.serviceAccountName == oldSelf.serviceAccountName)",
            "spec.serviceAccountName cannot be changed, added or removed: delete the Agent and create it again",
        ),
        Rule(
            "has(self.subjects) == has(oldSelf.subjects) && (!has(self.subjects) || self.subjects == oldSelf.subjects)",
            "spec.subjects cannot be changed, added or removed: delete the Agent and create it again",
        ),
    )


class AgentStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
    )
    policies_seen: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="Set while a resumption is pending (AdmissionPolicyUnread): the admission policies that the operator"
        " had read last; empty: none.",
    )
    conditions: Conditions = Field(default=(), description="Ready, Accepted, Suspended, Propagated.")


class Agent(Model):
    """An Agent object as it stands in the cluster or in a manifest."""

    api_version: str = ""
    kind: str = "Agent"
    metadata: ObjectMeta = Field(strict=False)
    spec: AgentSpec
    status: AgentStatus | None = None

    @property
    def service_account(self) -> str:
        """The name of its ServiceAccount, in its own namespace."""
        return self.spec.service_account_name or self.metadata.name
