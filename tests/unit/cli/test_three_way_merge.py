"""What `kubectl apply` keeps, changes and takes away of an object that somebody else has changed."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import kubectl_apply
from access_api import ApiObjects
from toolcrib.access.answers import Review
from toolcrib.resources import API_VERSION
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.prediction import sources
from toolcrib_cli.prediction.outcome import APPLY_REFUSED, predict, read_files
from toolcrib_cli.prediction.sources import AccessQuestion, Here
from toolcrib_cli.prediction.validation import in_cluster
from toolcrib_cli.three_way_merge import LAST_APPLIED, LiveWorld, applied

pytestmark = pytest.mark.guarantee

Manifest = dict[str, Any]
TOOL: Manifest = {
    "apiVersion": API_VERSION, "kind": "Tool", "metadata": {"namespace": "shop", "name": "t1"},
    "spec": {"description": "One.", "scopes": ["b:use"], "backend": {"none": {}}},
}  # fmt: skip
DENY_ONLY: Manifest = {
    "apiVersion": API_VERSION, "kind": "AgentScopeBinding", "metadata": {"namespace": "shop", "name": "m2"},
    "spec": {"subjects": [{"kind": "Agent", "name": "bot"}], "tools": {"deny": ["other"]}},
}  # fmt: skip
GRANT: Manifest = {
    **DENY_ONLY,
    "spec": {"subjects": [{"kind": "Agent", "name": "bot"}], "scopes": ["b:use"]},
}
BOT: Manifest = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"namespace": "shop", "name": "bot"},
}
SPACE: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
REF = "AgentScopeBinding/shop/m2"


def cluster_with(binding: Manifest) -> ApiObjects:
    api = ApiObjects()
    api.apply([SPACE, BOT, TOOL, binding])
    return api


def file_of(folder: Path, *manifests: Manifest) -> Path:
    file = folder / "new.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": manifests}))
    return file


def source(world: LiveWorld, file: Path) -> Here:
    return Here(AccessQuestion(bindings=(file,)), lambda: world, "a cluster")


def test_a_merge_is_kubectls_own_for_any_objects() -> None:
    draw = random.Random(5)

    def value(depth: int) -> Any:
        kind = draw.random()
        if depth and kind < 0.5:
            return {name: value(depth - 1) for name in draw.sample("abcd", draw.randint(0, 3))}
        return draw.choice((None, "x", "y", 1, 2, True, [], ["x"], [1, {"a": None}]))

    def thing() -> Manifest:
        found: Manifest = {"spec": value(3), "metadata": {"name": "x"}}
        for name in ("labels", "annotations"):
            if draw.random() < 0.5:
                found["metadata"][name] = {
                    k: draw.choice("uv") for k in draw.sample("abc", draw.randint(0, 2))
                }
        return found

    others = 0
    for _ in range(3000):
        before, manifest = thing(), thing()
        live = kubectl_apply.patch(kubectl_apply.modified(before), {"spec": value(3) or {}})
        if draw.random() < 0.2:
            live["metadata"].pop("annotations", None)
        wanted = kubectl_apply.apply(manifest, live)
        wanted["metadata"]["annotations"].pop(LAST_APPLIED)
        found = applied(manifest, live)
        found["metadata"]["annotations"].pop(LAST_APPLIED, None)
        assert found == wanted, (manifest, live)
        others += found.get("spec") != manifest["spec"]
    assert others > 500


def test_a_grant_that_was_patched_in_stays_as_the_apply_leaves_it(tmp_path: Path) -> None:
    api = cluster_with(DENY_ONLY)
    api.patch(REF, {"spec": {"scopes": ["b:use"]}})
    asked = source(api.world(), file_of(tmp_path, DENY_ONLY))

    found = asked.what_can("shop/bot", hidden=False)
    changed = asked.diff(None)

    assert [t.tool_id for t in found.tools] == ["shop/t1"]
    assert changed.subjects == ()
    kept = "AgentScopeBinding shop/m2 keeps spec.scopes, which the manifest does not have (as kubectl apply does)"
    answers: tuple[Review, ...] = (
        found,
        changed,
        asked.who_can("t1"),
        asked.explain("shop/bot", "t1"),
    )
    assert all(kept in answer.assumptions for answer in answers)


@pytest.mark.parametrize("unapplied", [False, True])
def test_an_end_that_was_patched_in_stays_too(tmp_path: Path, unapplied: bool) -> None:
    api = cluster_with(GRANT)
    api.patch(REF, {"spec": {"expiresAt": "2020-01-01T00:00:00Z"}}, unapplied=unapplied)

    same = source(api.world(), file_of(tmp_path, GRANT)).diff(None)
    taken = {**GRANT, "spec": GRANT["spec"] | {"expiresAt": None}}
    back = source(api.world(), file_of(tmp_path, taken))

    assert same.subjects == ()
    assert [s.gained for s in back.diff(None).subjects] == [1], "null takes it away"


def test_what_the_last_apply_had_and_the_manifest_lacks_is_taken_away_unless_kubectl_never_applied_it(
    tmp_path: Path,
) -> None:
    limited = {**GRANT, "spec": GRANT["spec"] | {"expiresAt": "2020-01-01T00:00:00Z"}}
    api = cluster_with(limited)
    gained = source(api.world(), file_of(tmp_path, GRANT)).diff(None)
    api.patch(REF, {}, unapplied=True)
    kept = source(api.world(), file_of(tmp_path, GRANT)).diff(None)

    assert [s.gained for s in gained.subjects] == [1]
    assert gained.assumptions == ()
    assert kept.subjects == ()
    assert "keeps spec.expiresAt" in kept.assumptions[-1]


def test_defaults_of_the_api_server_are_not_told_as_kept(tmp_path: Path) -> None:
    api = cluster_with(GRANT)
    api.patch("Tool/shop/t1", {"spec": {"scopeMatch": "Any", "state": "Active"}})

    found = predict(api.world(), read_files([file_of(tmp_path, TOOL)]))

    assert found.kept == ()


def test_an_apply_that_would_be_refused_changes_nothing_and_is_named(tmp_path: Path) -> None:
    api = cluster_with(GRANT)
    api.patch(REF, {"spec": {"limits": {"callsPerDay": 5}}})
    contents = read_files([file_of(tmp_path, DENY_ONLY)])  # takes the scopes away, and leaves the limits

    found = predict(api.world(), contents)
    (said,) = in_cluster(api.world(), contents, trusted=(), now=0)

    assert [(n.ref, n.reason) for n in found.not_used] == [("AgentScopeBinding shop/m2", APPLY_REFUSED)]
    assert "limits need a grant: set scopes too" in found.not_used[0].message
    assert found.after.bindings == found.before.bindings
    assert (said.reason, said.used) == (APPLY_REFUSED, False)


def test_an_annotation_that_kubectl_cannot_read_stops_the_apply(tmp_path: Path) -> None:
    for text in ("{", "[]", "[" * 100_000):
        api = cluster_with(DENY_ONLY)
        api.patch(REF, {"metadata": {"annotations": {LAST_APPLIED: text}}})
        found = predict(api.world(), read_files([file_of(tmp_path, GRANT)]))
        assert [n.reason for n in found.not_used] == [APPLY_REFUSED]
        assert LAST_APPLIED in found.not_used[0].message


@pytest.mark.parametrize("labels", [{}, {"tier": "gold"}])
def test_labels_of_a_namespace_that_somebody_else_set_stay_and_are_told_where_they_decide(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    api = ApiObjects()
    api.apply([{**SPACE, "metadata": {"name": "shop", "labels": labels}}, BOT, TOOL])
    api.patch("Namespace/shop", {"metadata": {"labels": {"team": "x", "stage": "y"}}})
    selecting: Manifest = {
        "apiVersion": API_VERSION, "kind": "ClusterAgentScopeBinding", "metadata": {"name": "by-label"},
        "spec": {
            "subjects": [{"kind": "Agent", "namespace": "shop", "name": "bot"}], "scopes": ["b:use"],
            "namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "Exists"}, {"key": "tier", "operator": "DoesNotExist"},
            ]},
        },
    }  # fmt: skip
    asked = source(api.world(), file_of(tmp_path, SPACE, selecting))
    asked.trusted = ("team", "tier")

    found = asked.what_can("shop/bot", hidden=False)

    assert [t.tool_id for t in found.tools] == ["shop/t1"], "team is kept, tier is taken away"
    assert any("Namespace shop keeps metadata.labels[team], which" in text for text in found.assumptions)


def test_in_a_folder_the_file_is_the_object(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    limited = {**GRANT, "spec": GRANT["spec"] | {"expiresAt": "2020-01-01T00:00:00Z"}}
    file_of(base, SPACE, TOOL, limited)
    head = file_of(tmp_path, GRANT)

    found = sources.folder_source(AccessQuestion(bindings=(head,)), [base]).diff(None)

    assert [s.gained for s in found.subjects] == [1]


def test_the_command_line_tells_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster_with(DENY_ONLY)
    api.patch(REF, {"spec": {"scopes": ["b:use"]}})
    file = file_of(tmp_path, DENY_ONLY)
    monkeypatch.setattr(sources, "cluster_source", lambda question, *_, **__: source(api.world(), file))

    with pytest.raises(SystemExit) as ended:
        cli.main(["access", "diff", "-f", str(file), "--exit-code"])

    shown = capsys.readouterr()
    assert int(ended.value.code or 0) == Exit.OK
    assert "assumed: AgentScopeBinding shop/m2 keeps spec.scopes" in shown.err
