"""Which Services stand behind Tools: a Service that may lead out of its namespace is never published."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import endpoint_slice, service, tool
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.service import ENDPOINT_SLICE, SERVICE, compact_slice, slice_facts
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.verdicts import ToolVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

TOOL = Ref("Tool", "heist/calculator")


class Stage:
    """A World and its Assessor; `turn` assesses what is dirty, as the loop does."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.world, self.versions = World(), 100
        self.assessor = Assessor(self.world, LoopSettings())
        there = [o | {"metadata": o["metadata"] | {"resourceVersion": "50"}} for o in objects]
        for kind in WATCHED:
            self.world.replace(kind, [o for o in there if o["kind"] == kind], "100")

    def apply(self, *objects: dict[str, Any]) -> None:
        for item in objects:
            self.versions += 1
            metadata = item["metadata"] | {"resourceVersion": str(self.versions)}
            self.world.upsert(item["kind"], item | {"metadata": metadata})

    def delete(self, kind: str, key: str) -> None:
        self.versions += 1
        self.world.remove(kind, key, str(self.versions))

    def turn(self) -> list[str | None]:
        """The addresses of the tools that are published in this turn."""
        dirty, _ = self.world.take()
        self.assessor.judge(self.assessor.expand(dirty))
        return [None if t.backend is None else t.backend.cluster_ip for t in self.assessor.batch().tools]

    @property
    def verdict(self) -> ToolVerdict:
        found = self.assessor.verdicts[TOOL]
        assert isinstance(found, ToolVerdict)
        return found


def judged(*objects: dict[str, Any]) -> ToolVerdict:
    stage = Stage(tool("calculator"), *objects)
    stage.turn()
    return stage.verdict


def address(verdict: ToolVerdict) -> str | None:
    assert verdict.published is not None
    assert verdict.published.backend is not None
    return verdict.published.backend.cluster_ip


@pytest.mark.parametrize("kind", [None, "ClusterIP", "NodePort", "LoadBalancer"])
def test_a_service_with_a_selector_is_published_with_its_cluster_ip(kind: str | None) -> None:
    found = judged(service(type=kind) if kind else service(), endpoint_slice())

    assert (address(found), found.service) == ("10.96.0.17", None)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "ExternalName", "externalName": "metadata.internal"}, "ExternalName"),
        ({"type": "ExternalName", "externalName": "x", "clusterIP": "10.96.0.17"}, "ExternalName"),
        ({"type": "SomethingNew"}, "SomethingNew"),
        ({"clusterIP": "None"}, "headless"),
        ({"clusterIP": "None", "selector": None}, "headless"),
        ({"selector": None}, "no selector"),
        ({"selector": {}}, "no selector"),
    ],
)
def test_a_service_that_may_lead_elsewhere_is_refused_with_the_remedy(
    spec: dict[str, Any], said: str
) -> None:
    found = judged(service(**spec), endpoint_slice())

    assert found.published is None
    assert found.refusal is not None
    assert found.refusal.reason is ConditionReason.SERVICE_UNSUPPORTED
    assert said in found.refusal.message
    assert "Service heist/example-tools" in found.refusal.message
    assert "Use a Service with a selector and a cluster IP" in found.refusal.message


FOREIGN: list[dict[str, Any]] = [
    {"manager": None},
    {"manager": "endpointslicemirroring-controller.k8s.io"},
    {"manager": "me"},
    {"owner": None},
    {"owner": {"kind": "Service", "name": "another", "controller": True}},
    {"owner": {"kind": "Service", "name": "example-tools"}},
    {"owner": {"kind": "Deployment", "name": "example-tools", "controller": True}},
    {"targets": [None]},
    {"targets": [{"kind": "Pod", "namespace": "heist"}, None]},
    {"targets": [{"kind": "Pod", "namespace": "bank"}]},
    {"targets": [{"kind": "Node", "name": "n", "namespace": "heist"}]},
]


@pytest.mark.parametrize("wrong", FOREIGN)
def test_one_foreign_endpoint_slice_beside_the_controllers_refuses_the_service(wrong: dict[str, Any]) -> None:
    found = judged(service(), endpoint_slice(), endpoint_slice("example-tools-evil", **wrong))

    assert found.published is None
    assert found.refusal is not None
    assert found.refusal.reason is ConditionReason.SERVICE_UNSUPPORTED
    assert "EndpointSlice example-tools-evil" in found.refusal.message
    assert "delete that EndpointSlice" in found.refusal.message


def test_foreign_endpoint_slices_of_other_services_and_namespaces_change_nothing() -> None:
    mine, elsewhere = endpoint_slice("a", manager="me"), endpoint_slice("b", manager="me")
    mine["metadata"]["labels"]["kubernetes.io/service-name"] = "another"
    elsewhere["metadata"]["namespace"] = "bank"
    unlabelled = endpoint_slice("c", manager="me")
    unlabelled["metadata"]["labels"] = {}

    assert address(judged(service(), mine, elsewhere, unlabelled)) == "10.96.0.17"


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([], "does not exist"),
        ([service(namespace="bank")], "does not exist"),
        ([service(clusterIP="")], "no cluster IP yet"),
        ([service(ports=[{"port": 80}, {"port": 443}])], "no TCP port 8080 (it has: 80, 443)"),
        ([service(ports=[{"port": 8080, "protocol": "UDP"}])], "no TCP port 8080 (it has: none)"),
    ],
)
def test_what_is_not_there_yet_is_said_and_no_address_is_published(
    objects: list[dict[str, Any]], said: str
) -> None:
    found = judged(*objects)

    assert address(found) is None
    assert found.service is not None
    assert found.service.reason is ConditionReason.SERVICE_MISSING
    assert said in found.service.message


def test_each_change_of_a_service_is_published_in_the_turn_that_sees_it() -> None:
    stage = Stage(tool("calculator"))
    assert stage.turn() == [None]
    stage.apply(service())
    assert stage.turn() == ["10.96.0.17"]
    first = stage.verdict.published
    stage.apply(endpoint_slice(), service(labels={"unrelated": "label"}))
    assert stage.turn() == [], "nothing that a call depends on has changed"

    stage.delete(SERVICE, "heist/example-tools")
    assert stage.turn() == [None]
    stage.apply(service(clusterIP="10.96.0.18"))
    assert stage.turn() == ["10.96.0.18"]
    assert first is not None
    assert stage.verdict.published is not None
    assert stage.verdict.published.digest == first.digest
    assert stage.verdict.published.route_digest == first.route_digest, (
        "an approval names the Service, not its address"
    )

    stage.apply(endpoint_slice("evil", manager="me"))
    stage.turn()
    assert stage.verdict.published is None
    stage.delete(ENDPOINT_SLICE, "heist/evil")
    assert stage.turn() == ["10.96.0.18"]
    stage.apply(service(type="ExternalName", clusterIP=""))
    stage.turn()
    assert stage.verdict.published is None


def test_an_endpoint_slice_that_moves_to_another_service_is_judged_there() -> None:
    stage = Stage(tool("calculator"), service(), endpoint_slice("evil", manager="me"))
    stage.turn()
    assert stage.verdict.published is None
    moved = endpoint_slice("evil", manager="me")
    moved["metadata"]["labels"]["kubernetes.io/service-name"] = "another"
    stage.apply(moved)

    assert stage.turn() == ["10.96.0.17"]


def test_a_tool_that_names_another_service_follows_that_one_alone() -> None:
    stage = Stage(tool("calculator"), service(), service("other", clusterIP="10.96.0.30"))
    stage.turn()
    stage.apply(
        tool("calculator", backend={"http": {"service": {"name": "other", "port": 8080}, "path": "/x"}})
    )
    assert stage.turn() == ["10.96.0.30"]
    stage.delete(SERVICE, "heist/example-tools")
    assert stage.turn() == []
    stage.delete(SERVICE, "heist/other")
    assert stage.turn() == [None]


def test_where_services_are_not_read_no_address_is_published_and_nothing_is_missing() -> None:
    world = World()
    for kind, objects in ((SERVICE, [service()]), ("Tool", [tool("calculator")])):
        world.replace(kind, objects)
    assessor = Assessor(world, LoopSettings(services=False))
    assessor.judge(assessor.expand(world.take()[0]))
    found = assessor.verdicts[TOOL]
    assert isinstance(found, ToolVerdict)

    assert (address(found), found.service) == (None, None)


def reached(stage: Stage) -> tuple[bool | None, ConditionReason]:
    stage.turn()
    found = stage.verdict.endpoints
    assert found is not None
    return found.value, found.cause.reason


def with_readiness(name: str, *ready: bool | None, **more: Any) -> dict[str, Any]:
    """An EndpointSlice of the Service with so many endpoints; None: it does not say whether one is ready."""
    made = endpoint_slice(name, targets=[{"kind": "Pod", "namespace": "heist"}] * len(ready))
    for endpoint, value in zip(made["endpoints"], ready, strict=True):
        endpoint["conditions"] = {"ready": value}
    return made | more


READY = (True, ConditionReason.ENDPOINTS_READY)
NOT_READY = (False, ConditionReason.NO_READY_ENDPOINTS)


def test_a_backend_is_reachable_while_one_endpoint_of_one_slice_is_ready() -> None:
    stage = Stage(tool("calculator"), service())
    assert reached(stage) == NOT_READY
    stage.apply(with_readiness("a", False, False), with_readiness("b", None))
    assert reached(stage) == READY, "an endpoint that says nothing counts as ready"
    stage.apply(with_readiness("b", False))
    assert reached(stage) == NOT_READY
    stage.apply(with_readiness("a", False, True))
    assert reached(stage) == READY
    stage.delete(ENDPOINT_SLICE, "heist/a")
    assert reached(stage) == NOT_READY
    stage.delete(SERVICE, "heist/example-tools")
    assert reached(stage) == (False, ConditionReason.SERVICE_MISSING)


def test_an_endpoint_is_ready_for_the_ports_of_its_slice_alone() -> None:
    several = service(ports=[{"name": "web", "port": 8080}, {"name": "admin", "port": 9090}])
    stage = Stage(
        tool("calculator"), several, with_readiness("a", True, ports=[{"name": "admin", "port": 1}])
    )
    assert reached(stage) == NOT_READY
    assert stage.verdict.endpoints is not None
    assert "no ready endpoint for port 8080" in stage.verdict.endpoints.cause.message
    stage.apply(with_readiness("b", True, ports=[{"name": "web", "port": 2}]))
    assert reached(stage) == READY
    stage.apply(with_readiness("b", True, ports=[{"name": "web", "port": 2, "protocol": "UDP"}]))
    assert reached(stage) == NOT_READY


def test_endpoints_that_come_and_go_beside_a_ready_one_are_no_news() -> None:
    stage = Stage(tool("calculator"), service(), with_readiness("a", True))
    stage.turn()
    stage.apply(with_readiness("a", True, False, True))

    assert stage.world.take()[0] == set()


def test_slices_of_services_that_no_tool_names_touch_nothing() -> None:
    stage = Stage(tool("calculator"), service())
    stage.turn()
    other = with_readiness("c", True)
    other["metadata"]["labels"]["kubernetes.io/service-name"] = "another"
    stage.apply(other)

    assert stage.assessor.expand(stage.world.take()[0]) == []


TARGETS = st.lists(
    st.sampled_from([None, {"kind": "Pod", "namespace": "heist"}, {"kind": "Pod", "namespace": "bank"}]),
    max_size=6,
)


@given(
    manager=st.sampled_from([None, "me", "endpointslice-controller.k8s.io"]),
    owner=st.sampled_from([None, {"kind": "Service", "name": "example-tools", "controller": True}]),
    targets=TARGETS,
    ready=st.lists(st.sampled_from([None, True, False]), min_size=6, max_size=6),
    ports=st.sampled_from(
        [
            None,
            [],
            [{"port": 80}],
            [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 80}],
        ]
    ),
)
def test_what_is_kept_of_an_endpoint_slice_gives_the_same_verdict_as_the_whole(
    manager: str | None,
    owner: dict[str, Any] | None,
    targets: list[dict[str, Any] | None],
    ready: list[bool | None],
    ports: list[dict[str, Any]] | None,
) -> None:
    whole = endpoint_slice("s", manager=manager, owner=owner, targets=targets) | {"ports": ports}
    for endpoint, value in zip(whole["endpoints"], ready, strict=False):
        endpoint["conditions"] = {"ready": value}
    facts = slice_facts(whole)

    assert slice_facts(compact_slice(whole)) == facts
    own = manager is not None and manager != "me" and owner is not None
    assert ("foreign" not in facts) == (
        own and all(t == {"kind": "Pod", "namespace": "heist"} for t in targets)
    )


def test_of_services_and_endpoint_slices_the_world_keeps_a_few_facts() -> None:
    pods = [{"kind": "Pod", "namespace": "heist"}] * 500
    stage = Stage(service(labels={"big": "x" * 60}), endpoint_slice(targets=pods))
    kept = [stage.world.get(Ref(kind, key)) for kind, key in
            ((SERVICE, "heist/example-tools"), (ENDPOINT_SLICE, "heist/example-tools-a"))]  # fmt: skip

    assert [None if e is None else (dict(e.body), dict(e.labels), e.uid) for e in kept] == [
        ({"ip": "10.96.0.17", "ports": (8080,), "names": ("",)}, {}, ""),
        ({"service": "example-tools", "ready": ("",)}, {}, ""),
    ]
