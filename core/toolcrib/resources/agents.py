"""Agent: who may be stopped by one field, by the identities that the agent has; and, where asked, what the operator runs."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from toolcrib.resources.addresses import URL
from toolcrib.resources.backends import SECRET_KEY
from toolcrib.resources.bindings import Subject, SubjectKind
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import WHOLE, DnsSubdomain, ListOf, Model, ObjectMeta, Rule

MODE = r"^(static|dynamic|cached|batched|hybrid|auto)$"
TOOL_ID = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

MOST_TEXT = 65_536
MOST_BYTES = 120_000
"""Of one text in UTF-8: it is an environment variable of the runner, and Linux takes 128 KiB of each."""
_NO_NUL = r"^[^\x00]*$"
RUN_FIELDS = ("run", "mode", "core", "model")
"""Fields of a spec that say what the operator runs."""

_OUTSIDE = (SubjectKind.OAUTH_CLIENT, SubjectKind.USER)


class ModelKeyReference(Model):
    """A key of a Secret of the Agent's namespace that is labelled as a model key."""

    name: DnsSubdomain = Field(description="Name of the Secret.")
    key: str = Field(
        default="api-key", pattern=SECRET_KEY, max_length=253, description="Key within the Secret."
    )


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
    api_key_secret_ref: ModelKeyReference | None = Field(
        default=None,
        description='The API key of the endpoint: a Secret with the label toolcrib.dev/model-key: "true", whose annotation'
        " toolcrib.dev/hosts lists the endpoint's host. The pod gets it as a file.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.apiKeySecretRef) || has(self.baseURL)",
            "apiKeySecretRef needs baseURL: a key is given to one endpoint",
            lambda m: m.api_key_secret_ref is None or m.base_url is not None,
        ),
    )


def _fits(text: str | None) -> bool:
    return len((text or "").encode()) <= MOST_BYTES


class AgentRun(Model):
    """What the operator runs for an agent: a Job for a task, else a Deployment."""

    task: str | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_TEXT,
        pattern=_NO_NUL,
        description="One task, run once by a Job. Another task, prompt, mode, model or attempt is another run, by another Job."
        " Absent: a Deployment that follows the registry.",
    )
    replicas: Annotated[int, Field(ge=0, le=100), WHOLE] | None = Field(
        default=None, description="Pods of the Deployment; 1 if absent. Not with task."
    )
    system_prompt: str | None = Field(
        default=None,
        max_length=MOST_TEXT,
        pattern=_NO_NUL,
        description="System message for the model.",
    )
    attempt: Annotated[int, Field(ge=1, le=2_147_483_647), WHOLE] | None = Field(
        default=None,
        description="Change it to run the same task again, or to have a run judged again that no admission policy has checked."
        " For a Deployment it changes nothing else.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.task) || !has(self.replicas)",
            "task and replicas exclude each other: a task is run once",
            lambda r: r.task is None or r.replicas is None,
        ),
        Rule(
            f"(!has(self.task) || size(bytes(self.task)) <= {MOST_BYTES})"
            f" && (!has(self.systemPrompt) || size(bytes(self.systemPrompt)) <= {MOST_BYTES})",
            f"task and systemPrompt have at most {MOST_BYTES:,} bytes each",
            lambda r: _fits(r.task) and _fits(r.system_prompt),
        ),
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
        description="How the agent uses tools: static, dynamic, cached, batched, hybrid or auto. With run the operator passes it"
        " to the runner; else it is for people.",
    )
    core: (
        Annotated[tuple[Annotated[str, Field(pattern=TOOL_ID, max_length=317)], ...], ListOf(1, 32)] | None
    ) = Field(
        default=None,
        description="Ids of tools that an agent in hybrid mode has at hand at once. With run the operator passes them to the runner;"
        " else they are for people. It grants nothing.",
    )
    model: AgentModel | None = Field(
        default=None,
        description="The model that the agent talks to. With run the operator passes it to the runner; else it is for people.",
    )
    run: AgentRun | None = Field(
        default=None,
        description="What the operator runs, in namespaces of agents.namespaces; absent: somebody else runs the agent. Setting"
        " it, or changing model, mode or core beside it, takes the verb equip on the ServiceAccount.",
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
        Rule(
            "!has(self.run) || !has(self.run.task) || has(self.model) && has(self.model.baseURL)",
            "a task needs a model: set spec.model.baseURL",
            lambda a: (
                a.run is None or a.run.task is None or (a.model is not None and a.model.base_url is not None)
            ),
        ),
    )


class RunOutcome(StrEnum):
    """What became of a run."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class LastRun(Model):
    """The last Job of an Agent."""

    job: str = Field(max_length=63, description="Its name.")
    started_at: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When its pod was created."
    )
    completed_at: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When it ended."
    )
    outcome: RunOutcome = Field(strict=False, description="Running, Succeeded or Failed.")


class JudgedRun(Model):
    """Whether the author of a run was asked for his rights."""

    digest: str = Field(max_length=64, description="Of the fields that say what is run.")
    admitted: bool = Field(description="false: it is not run until these fields are others.")


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
    run: JudgedRun | None = Field(
        default=None, description="The run that was judged last, by the admission policies."
    )
    tools: int | None = Field(
        default=None,
        ge=0,
        description="Tools that the agent's account sees now: what its next discovery gets.",
    )
    last_run: LastRun | None = Field(default=None, description="The last run of a task.")
    conditions: Conditions = Field(
        default=(),
        description="Ready, Accepted, Suspended, Propagated; Deployed and Discovering where the operator runs it.",
    )


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

    @property
    def run_digest(self) -> str | None:
        """Of all that says what is run, and as whom; None: nothing is run."""
        spec = self.spec
        if spec.run is None:
            return None
        said = spec.model_dump_json(by_alias=True, exclude_none=True, include=set(RUN_FIELDS))
        return hashlib.sha256(f"{self.service_account}\n{said}".encode()).hexdigest()[:32]
