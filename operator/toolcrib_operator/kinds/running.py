"""Whether the operator runs an Agent: where it may, as an account that is there, and as its author was allowed to.

Who makes a pod run as an account acts with its grants. So a run takes effect once its author was asked for the verb `equip`
on that account, as a grant waits for its author's rights (`admission`). What was judged stands in the status by a digest of
all that says what is run: a later edit of something else, such as a suspension, asks nothing anew.
"""

from __future__ import annotations

from toolcrib.resources.agents import Agent
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.admission import RESTORE, run_again
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.model_key import key_of_model, lacking
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.verdicts import Cause, Run
from toolcrib_operator.objects import Entry, Ref


def account_of(entry: Entry) -> str:
    """The ServiceAccount `namespace/name` of an Agent that can be read."""
    agent = entry.resource
    assert isinstance(agent, Agent)
    return f"{entry.ref.namespace}/{agent.service_account}"


def needs(agent: Agent) -> tuple[Ref, ...]:
    """The objects that a run rests on."""
    if agent.spec.run is None:
        return ()
    key = key_of_model(agent)
    account = Ref(SERVICE_ACCOUNT, f"{agent.metadata.namespace or 'default'}/{agent.service_account}")
    return (account,) if key is None else (account, key)


def judged(agent: Agent, entry: Entry, record: Record) -> bool | None:
    """Whether the author of the run was allowed to write it; None: nobody has judged it yet, or nothing is run."""
    digest = agent.run_digest
    if digest is None:
        return None
    if record.run is not None and record.run[:2] == (entry.uid, digest):
        return record.run[2]
    said = entry.status.get("run") or {}
    return bool(said.get("admitted")) if said.get("digest") == digest else None


def is_fresh(agent: Agent, entry: Entry, record: Record) -> bool:
    """Whether it depends on the admission policies what becomes of the run."""
    return agent.spec.run is not None and judged(agent, entry, record) is None


def unjudged(agent: Agent, entry: Entry, record: Record, facts: Facts) -> Cause | None:
    """Why a run is refused that an operator has seen which did not judge it: it was accepted as an Agent that runs nothing."""
    seen = statuses.holds(entry.status, "Accepted", generation=entry.generation)
    if facts.admitted.external or not seen or not is_fresh(agent, entry, record):
        return None
    return _unchecked(entry)


def judge(agent: Agent, entry: Entry, record: Record, refusal: Cause | None, facts: Facts) -> Run | None:
    """What becomes of the run.

    Args:
        agent, entry, record: whose.
        refusal: of this generation by `admission`; None: its author was asked for his rights.
        facts: accounts, Secrets and settings.
    """
    digest = agent.run_digest
    if digest is None:
        record.run = None
        return None
    admitted = judged(agent, entry, record)
    if admitted is None and refusal is not None:
        if refusal.reason is ConditionReason.ADMISSION_POLICY_UNREAD:
            return Run(digest, None, refusal)
        admitted = False
    record.run = (entry.uid, digest, admitted is not False)
    if admitted is False:
        return Run(digest, False, _unchecked(entry), stops=True)
    return Run(digest, True, *_obstacle(agent, facts))


def _unchecked(entry: Entry) -> Cause:
    message = (
        "Not run: no policy checked whether its author may run an agent as this account."
        f" {RESTORE} Then have it judged again: {run_again(entry)}"
    )
    return Cause(ConditionReason.ADMISSION_POLICY_MISSING, message)


def _obstacle(agent: Agent, facts: Facts) -> tuple[Cause | None, bool]:
    """Why it is not run, and whether what runs ends for it."""
    settings, namespace = facts.settings.agents, agent.metadata.namespace or "default"
    assert settings is not None
    if namespace not in settings.namespaces:
        message = (
            f"The operator runs no agents in the namespace {namespace}; an administrator can add it to agents.namespaces."
            " Pods that run already are nobody's now: delete them, or their Deployment."
        )
        return Cause(ConditionReason.NAMESPACE_NOT_RUN, message), False
    if not settings.image:
        return Cause(ConditionReason.NO_IMAGE), False
    account = f"{namespace}/{agent.service_account}"
    if not facts.accounts.exists(account):
        message = f"ServiceAccount {account} does not exist: create it, or correct spec.serviceAccountName"
        return Cause(ConditionReason.ACCOUNT_MISSING, message), False
    key = key_of_model(agent)
    refusal = lacking(agent, None if key is None else facts.objects.get(key))
    return refusal, refusal is not None and refusal.reason is ConditionReason.MODEL_KEY_NOT_ALLOWED
