"""What a binding denied stays denied as long as its object exists, also where it cannot be read or assessed any more."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds import binding
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

BINDING: dict[str, Any] = {
    "apiVersion": "toolcrib.dev/v1alpha1",
    "kind": "AgentScopeBinding",
    "metadata": {"name": "b", "namespace": "heist", "uid": "u", "generation": 1, "resourceVersion": "1"},
    "spec": {
        "subjects": [{"kind": "ServiceAccount", "name": "bot"}],
        "scopes": ["x:use"],
        "tools": {"deny": ["secret_*"], "denyScopes": ["money:move"]},
    },
}

REF = Ref("AgentScopeBinding", "heist/b")


class Operator:
    """A world and what is published of it."""

    def __init__(self, admitted: Admitted | None = None) -> None:
        self.world = World()
        self.assessor = Assessor(self.world, LoopSettings(), admitted)
        self.published: dict[str, PublishedBinding] = {}
        self.generation = self.version = 0

    def write(self, **spec: Any) -> None:
        """Write the binding with these fields, and take the turn."""
        self.generation += 1
        self.touch(**spec)

    def touch(self, **spec: Any) -> None:
        """The same generation once more, and take the turn."""
        self.version += 1
        manifest = copy.deepcopy(BINDING)
        manifest["metadata"] |= {"generation": self.generation, "resourceVersion": str(self.version)}
        manifest["spec"] |= spec
        self.world.upsert("AgentScopeBinding", manifest)
        # what has not changed is not dirty; something that the binding names may be
        self.assessor.judge([REF])
        self.turn()

    def turn(self) -> None:
        """Assess what changed, and publish it."""
        dirty, _ = self.world.take()
        self.assessor.judge(self.assessor.expand(dirty))
        batch = self.assessor.batch()
        self.published |= {b.uid: b for b in batch.bindings}
        for uid in batch.removed.bindings:
            del self.published[uid]


def _unreadable(operator: Operator, _: pytest.MonkeyPatch) -> None:
    operator.write(scopes="no list")


def _fails(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(binding, "assess_binding", lambda *_, **__: 1 / 0)
        operator.write(scopes=["y:use"])


@pytest.mark.parametrize("breaks", [_unreadable, _fails])
def test_a_binding_that_cannot_be_used_any_more_denies_what_it_denied_and_grants_nothing(
    breaks: Callable[[Operator, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator()
    operator.write()
    before = operator.published["u"]
    breaks(operator, monkeypatch)
    held = operator.published["u"]

    assert (before.scopes, held.scopes) == (("x:use",), ())
    assert (
        (held.deny, held.deny_scopes) == (before.deny, before.deny_scopes) == (("secret_*",), ("money:move",))
    )
    assert (held.subjects, held.namespaces) == (before.subjects, before.namespaces)
    operator.write()
    assert operator.published["u"].scopes == ("x:use",)
    breaks(operator, monkeypatch)
    operator.world.remove("AgentScopeBinding", "heist/b")
    operator.turn()
    assert operator.published == {}


def test_an_object_of_the_same_name_that_cannot_be_read_denies_nothing_for_the_one_before() -> None:
    operator = Operator()
    operator.write()
    other = copy.deepcopy(BINDING)
    other["metadata"] |= {"uid": "another", "generation": 1, "resourceVersion": "9"}
    other["spec"]["scopes"] = "no list"
    operator.world.upsert("AgentScopeBinding", other)
    operator.turn()

    assert operator.published == {}


@pytest.mark.guarantee
@pytest.mark.parametrize("before_the_failure", [True, False], ids=["refused first", "failed first"])
def test_a_failed_assessment_never_lets_in_a_grant_that_the_admission_policies_did_not_see(
    before_the_failure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted = Admitted(external=False)
    admitted.begun = admitted.answered = 1
    admitted.problem, admitted.seen = "they are missing", "0a1b"
    operator = Operator(admitted)

    def look() -> None:
        """Look at the policies, and decide what waits."""
        admitted.begun += 1
        admitted.answered += 1
        operator.assessor.judge(sorted(admitted.ripe()))

    operator.generation = 1
    if before_the_failure:
        operator.touch()
        look()
    with monkeypatch.context() as broken:
        broken.setattr(binding, "assess_binding", lambda *_, **__: 1 / 0)
        operator.touch()
        look()
    failed = operator.assessor.verdicts[REF]
    admitted.problem, admitted.seen = None, "2c3d"
    operator.touch()
    look()
    after = operator.assessor.verdicts[REF]

    assert [v.refusal and v.refusal.reason.value for v in (failed, after)] == ["AdmissionPolicyMissing"] * 2
    operator.write()
    look()
    assert operator.assessor.verdicts[REF].refusal is None
