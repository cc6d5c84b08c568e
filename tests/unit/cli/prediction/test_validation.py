"""`validate --against-cluster`: what the operator would say, before anything is applied."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import binding, cluster_binding, tool
from toolcrib_cli import manifests
from toolcrib_cli.prediction.validation import in_cluster
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.world import World

NOW = 1_800_000_000.0
OLD = "2026-01-01T00:00:00Z"


def account(name: str = "planner") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "heist", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def namespace(name: str = "heist", **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def there(*objects: dict[str, Any]) -> World:
    """A cluster that holds these objects, and their namespace if it is not among them."""
    world = World()
    objects = (*(() if any(o["kind"] == "Namespace" for o in objects) else (namespace(),)), *objects)
    for kind in WATCHED:
        world.replace(kind, [
            {**o, "metadata": {"uid": f"uid-{i}", "generation": 1, "resourceVersion": "1", "creationTimestamp": OLD}
             | o["metadata"]}
            for i, o in enumerate(objects) if o["kind"] == kind
        ], "9")  # fmt: skip
    return world


def said(
    tmp_path: Path, world: World, *objects: dict[str, Any], trusted: Sequence[str] = ()
) -> list[tuple[str, str, str, bool]]:
    """(object, reason, field, used) of everything that is said of these manifests."""
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    found = in_cluster(world, [manifests.read(file)], trusted=trusted, now=NOW)
    return [(e.item.named, e.reason, e.finding.field, e.used) for e in found]


PLANNER = "AgentScopeBinding heist/planner"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, []),
        ({"scopes": ["no:use"]}, [("MatchesNothing", "spec")]),
        ({"expiresAt": "2027-01-01T00:00:00Z"}, [("Expired", "spec.expiresAt"), ("ExpiredAtApply", "spec.expiresAt")]),
        ({"subjects": [{"kind": "ServiceAccount", "name": "nobody"}]}, [("SubjectNotFound", "spec.subjects[0]")]),
        ({"tools": {"deny": ["delete_*"]}}, [("DenyNeverFires", "spec.tools.deny[0]")]),
        (
            {"tools": {"allow": ["calc*"], "deny": ["calculator"]}},
            [("MatchesNothing", "spec"), ("AllowShadowed", "spec.tools.allow[0]"), ("WildcardAllow", "spec.tools.allow[0]")],
        ),
    ],
)  # fmt: skip
def test_a_binding_is_told_what_is_odd_about_it(
    tmp_path: Path, spec: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    world = there(tool("calculator"), account())
    manifest = binding("planner", ["calculator:use"])
    manifest["spec"] |= spec
    assert said(tmp_path, world, manifest) == [(PLANNER, reason, field, True) for reason, field in found]


def test_a_fallback_with_wider_effects_than_its_tool_is_told_at_its_field(tmp_path: Path) -> None:
    rates = tool("rates", scopes=["rates:use"], annotations={"readOnlyHint": True}, fallback=["spare"])
    for hints, told in (
        ({"readOnlyHint": True}, []),
        ({"idempotentHint": True}, [("Tool heist/rates", "FallbackRefused", "spec.fallback", True)]),
    ):
        spare = tool("spare", scopes=["rates:use"], annotations=hints)
        found = said(tmp_path, there(), rates, spare)
        assert [each for each in found if each[1] == "FallbackRefused"] == told


def test_a_mistyped_scope_is_named_with_the_one_that_may_be_meant(tmp_path: Path) -> None:
    world, file = there(tool("calculator"), tool("vault", "bank"), account()), tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump_all([binding("planner", ["calculater:use"])]))
    (found,) = in_cluster(world, [manifests.read(file)], now=NOW)
    expected = "No tool there has the scope 'calculater:use'; did you mean 'calculator:use'?"
    assert found.finding.message.endswith(expected)


def test_a_tool_whose_calls_need_what_no_model_is_told_of_is_told_so(tmp_path: Path) -> None:
    lost = tool(
        "calculator",
        inputSchema={"type": "object", "required": ["a"]},
        backend={"http": {"url": "https://api.example.com/sums/{id}"}},
    )
    assert said(tmp_path, there(), lost) == [
        ("Tool heist/calculator", "RequiredUndeclared", "spec.inputSchema.required", True),
        ("Tool heist/calculator", "PathArgumentUndeclared", "spec.backend.http.url", True),
    ]


def test_what_the_files_bring_along_counts_as_there(tmp_path: Path) -> None:
    fresh = {k: v for k, v in account().items() if k != "metadata"}
    fresh["metadata"] = {"name": "planner", "namespace": "heist"}
    new = (
        tool("calculator"),
        fresh,
        binding("planner", ["calculator:use"], tools={"deny": ["other"]}),
        tool("other"),
    )
    assert said(tmp_path, there(), *new) == []


def test_what_a_binding_of_the_same_name_says_now_does_not_count(tmp_path: Path) -> None:
    world = there(
        tool("calculator"), account(), binding("planner", ["calculator:use"], tools={"deny": ["x"]})
    )
    assert said(tmp_path, world, binding("planner", ["calculator:use"])) == []


def test_a_name_that_an_older_tool_has_is_a_problem_and_an_update_of_that_tool_is_none(
    tmp_path: Path,
) -> None:
    world = there(tool("calculator"))
    second = tool("pocket", name="calculator")
    again = tool("calculator", description="The same, described better")
    assert said(tmp_path, world, second, again) == [("Tool heist/pocket", "NameConflict", "spec.name", False)]


def test_a_tool_that_is_described_like_one_of_the_cluster_is_told_so(tmp_path: Path) -> None:
    same = {"description": "Opens the door of the vault"}
    world = there(tool("front", **same), tool("calculator"), namespace(), namespace("bank"))
    new = (tool("back", **same), tool("back", "bank", **same), tool("calculator", description=""))
    assert said(tmp_path, world, *new) == [
        ("Tool heist/back", "DuplicateDescription", "spec.description", True),
        ("Tool heist/calculator", "NoDescription", "spec.description", True),
    ]


def test_a_selector_on_a_label_that_is_not_trusted_is_a_problem(tmp_path: Path) -> None:
    labelled = cluster_binding(
        "planner", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}}
    )
    name = "ClusterAgentScopeBinding planner"
    objects = (tool("calculator"), account(), namespace(team="a"))
    refused = [(name, "UntrustedLabel", "spec.namespaceSelector", False)]
    assert said(tmp_path, there(*objects), labelled) == refused
    assert said(tmp_path, there(*objects), labelled, trusted=["team"]) == []
    nowhere = there(tool("calculator"), account())
    assert said(tmp_path, nowhere, labelled, trusted=["team"]) == [(name, "MatchesNothing", "spec", True)]


def test_a_binding_of_powers_alone_is_not_missed_a_tool(tmp_path: Path) -> None:
    powers = cluster_binding("planner", ["registry:admin"], namespaceSelector={})
    assert said(tmp_path, there(account()), powers) == []


def test_what_is_in_a_namespace_that_does_not_exist_is_a_problem_unless_the_files_bring_it(
    tmp_path: Path,
) -> None:
    world = there(tool("calculator"), account())
    lost = (tool("calculator", "hiest"), binding("planner", ["calculator:use"], "hiest"))
    problem = ("NamespaceNotFound", "metadata.namespace", False)
    assert said(tmp_path, world, *lost) == [
        ("Tool hiest/calculator", *problem),
        ("AgentScopeBinding hiest/planner", *problem),
    ]
    # wherever in the files: what comes too early takes a second apply
    fresh = account() | {"metadata": {"name": "planner", "namespace": "hiest"}}
    assert said(tmp_path, there(account()), *lost, fresh, namespace("hiest")) == []


def test_a_namespace_in_a_file_that_is_refused_is_no_second_problem_elsewhere(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    bad = tool("bad", "fresh") | {"spec": {}}
    broken.write_text(yaml.safe_dump_all([namespace("fresh"), bad]))
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump(tool("calculator", "fresh")))
    contents = [manifests.read(file) for file in (broken, good)]
    assert contents[0].refused
    assert in_cluster(there(), contents, trusted=(), now=NOW) == []
