"""What `toolcrib access` says of bindings that are not applied is what comes out when they are."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from access_api import ISSUERS, ApiObjects
from access_worlds import (
    ACCOUNTS,
    CLUSTER_ISSUER,
    NAMESPACES,
    OAUTH,
    random_change,
    random_patches,
    random_world,
    ref_of,
)
from suites import size
from toolcrib.access import proposals, subjects
from toolcrib.access.answers import ReviewedTool
from toolcrib.access.changes import changes
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Tokens, Who
from toolcrib.authorizer import Action, decide
from toolcrib.errors import InvalidManifest
from toolcrib.view import view_of
from toolcrib_cli.prediction.outcome import APPLY_REFUSED, predict, read_files

pytestmark = pytest.mark.guarantee

CASES, PATCHED = size(quick=30, whole=300), size(quick=12, whole=120)
TRUSTED = ("kubernetes.io/metadata.name", "tier")
SUBJECTS = [
    *(f"ServiceAccount/{ns}/{name}" for ns in NAMESPACES for name in ACCOUNTS),
    "OAuthClient/ide", "OAuthClient/cli", "User/alice", "Group/ops",
]  # fmt: skip
TOKENS = Tokens(cluster_issuer=CLUSTER_ISSUER, policies={i.issuer: i.scopes for i in ISSUERS.values()})
Line = tuple[str, str | None, str, int]


def real(api: ApiObjects, subject: str, now: float) -> list[Line]:
    """What a registry lists for a token of the subject: id, name, deciding object and its generation."""
    who = api.identity(subject, now)
    if who is None:
        return []
    view = view_of(who, api.snapshot, now)
    found = []
    for tool_id, tool in view.tools.items():
        by = decide(who, tool, Action.CALL, api.snapshot.policy, now).binding
        assert by is not None
        found.append((tool_id, view.listed_name(tool_id), by.ref, by.generation))
    return sorted(found)


def lines(tools: tuple[ReviewedTool, ...]) -> list[Line]:
    assert all(t.binding for t in tools)
    return [(t.tool_id, t.name, t.binding.ref, t.binding.generation) for t in tools if t.binding]


def asked(subject: str) -> Who:
    return subjects.parse(subject, None if subject.startswith("ServiceAccount") else OAUTH)


def written(folder: Path, manifests: list[dict[str, Any]]) -> list[Path]:
    file = folder / "changes.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": manifests}))
    return [file]


@pytest.mark.property
def test_the_prediction_for_changes_that_are_not_applied_is_the_list_after_they_are(tmp_path: Path) -> None:
    now, changed_lists = time.time(), 0
    for seed in range(CASES):
        world = random_world(seed)
        change, deleted = random_change(seed, world)
        api = ApiObjects()
        api.apply(world.manifests)
        before = {s: real(api, s, now) for s in SUBJECTS}

        found = predict(api.world(), read_files(written(tmp_path, change)) if change else (), deleted)
        told_before = AccessReview(found.before, now, TOKENS)
        told = AccessReview(found.after, now, TOKENS)
        api.apply(change, deleted)

        for subject in SUBJECTS:
            after = real(api, subject, now)
            where = f"world {seed}, {subject}"
            assert lines(told_before.what_can(asked(subject)).tools) == before[subject], where
            assert lines(told.what_can(asked(subject)).tools) == after, where
            changed_lists += after != before[subject]
    assert changed_lists > CASES / 4, "worlds in which nothing changes prove nothing"


@pytest.mark.property
def test_a_prediction_for_objects_that_were_patched_in_the_cluster_is_the_list_after_the_apply(
    tmp_path: Path,
) -> None:
    """The change knows nothing of what somebody patched, or made without kubectl; an apply keeps what it does not own."""
    now, changed_lists, left, refused = time.time(), 0, 0, 0
    for seed in range(2000, 2000 + PATCHED):
        world = random_world(seed)
        change, deleted = random_change(seed, world)
        change += [m for m in world.manifests if seed % 3 == 0 and not ref_is_in(m, change)]  # all files anew
        deleted = [d for d in deleted if d not in {ref_of(m) for m in change}]
        api = ApiObjects(TRUSTED)
        api.apply(world.manifests)
        for number, (ref, patch) in enumerate(random_patches(seed, world)):
            api.patch(ref, patch, unapplied=(seed + number) % 4 == 0)
        before = {s: real(api, s, now) for s in SUBJECTS}

        files = read_files(written(tmp_path, change)) if change else ()
        found = predict(api.world(), files, deleted, trusted=TRUSTED)
        api.apply(change, deleted)

        told = AccessReview(found.after, now, TOKENS)
        for subject in SUBJECTS:
            after = real(api, subject, now)
            assert lines(told.what_can(asked(subject)).tools) == after, f"world {seed}, {subject}"
            changed_lists += after != before[subject]
        left += len(found.kept)
        refused += sum(n.reason == APPLY_REFUSED for n in found.not_used)
    assert min(changed_lists, left) > PATCHED / 4
    assert refused


def ref_is_in(manifest: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    return ref_of(manifest) in {ref_of(m) for m in others}


def test_a_diff_names_exactly_the_tools_that_subjects_gain_and_lose(tmp_path: Path) -> None:
    now, rows = time.time(), 0
    for seed in range(CASES, CASES + 100):
        world = random_world(seed)
        change, deleted = random_change(seed, world)
        api = ApiObjects()
        api.apply(world.manifests)
        before = {s: {line[0] for line in real(api, s, now)} for s in SUBJECTS}
        found = predict(api.world(), read_files(written(tmp_path, change)) if change else (), deleted)
        answer = changes(AccessReview(found.before, now, TOKENS), AccessReview(found.after, now, TOKENS))
        api.apply(change, deleted)

        told = {
            s.who.subject.replace("Agent/", "ServiceAccount/"): {
                kind: {t.tool_id for t in s.tools if t.change == kind} for kind in ("gained", "lost")
            }
            for s in answer.subjects
        }
        named = {
            str(w).replace("Agent/", "ServiceAccount/")
            for r in (found.before, found.after)
            for w in AccessReview(r, now, TOKENS).subjects()
        }
        for subject in set(SUBJECTS) & named:
            after = {line[0] for line in real(api, subject, now)}
            shown = told.get(subject, {"gained": set(), "lost": set()})
            assert shown["gained"] == after - before[subject], (seed, subject)
            assert shown["lost"] == before[subject] - after, (seed, subject)
            rows += len(shown["gained"]) + len(shown["lost"])
    assert rows > 50


def test_a_registry_asked_about_bindings_foresees_the_same(tmp_path: Path) -> None:
    """The route knows the snapshot alone; what it cannot know it refuses, and the rest comes out as after the apply."""
    now, compared = time.time(), 0
    refused: set[str] = set()
    for seed in range(1000, 1200):
        world = random_world(seed)
        change, deleted = random_change(seed, world)
        change = [m for m in change if m["kind"].endswith("Binding")]
        api = ApiObjects()
        api.apply(world.manifests)
        known = {
            f"{b.kind}/{b.namespace + '/' if b.namespace else ''}{b.name}"
            for b in api.snapshot.bindings.values()
        }
        deleted = [d for d in deleted if d in known]
        exist = [asked(s) for s in SUBJECTS if s.startswith("ServiceAccount") and api.uid(s)]
        try:
            after, _ = proposals.proposed(api.snapshot, change, deleted, TOKENS, exist)
        except InvalidManifest as error:
            refused.add(error.findings[0].message)
            continue
        review = AccessReview(after, now, TOKENS, proposed=frozenset())
        api.apply(change, deleted)
        for subject in SUBJECTS:
            if api.identity(subject, now) is None:
                continue
            told = [line[:3] for line in lines(review.what_can(asked(subject)).tools)]
            assert told == [line[:3] for line in real(api, subject, now)], (seed, subject)
            compared += 1
    assert compared > 1000
    assert refused == {"the registry does not know the label 'tier' of namespaces"}


def test_the_tokens_scopes_count_where_they_are_said(tmp_path: Path) -> None:
    now = time.time()
    for seed in range(60):
        draw = random.Random(seed)
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        carried = draw.sample(("read", "write", "use"), draw.randint(0, 2))
        tokens = Tokens(TOKENS.cluster_issuer, TOKENS.policies, scopes=frozenset(carried))
        for subject in ("OAuthClient/ide", "User/alice", "Group/ops"):
            who = api.identity(subject, now, carried)
            wanted = sorted(view_of(who, api.snapshot, now).tools)

            found = AccessReview(api.snapshot, now, tokens).what_can(asked(subject))

            assert [t.tool_id for t in found.tools] == wanted, (seed, subject)
            assert all(set(t.token_scopes) <= set(carried) and t.token_scopes for t in found.tools)


@pytest.mark.parametrize("existing", [True, False])
def test_a_new_service_account_counts_only_where_it_is_there_or_comes_with_the_change(
    tmp_path: Path, existing: bool
) -> None:
    world = random_world(3, accounts=False)
    binding = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "ClusterAgentScopeBinding",
        "metadata": {"name": "everything"},
        "spec": {
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "newcomer"}],
            "namespaceSelector": {},
            "scopes": ["read", "write", "use"],
        },
    }
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": "shop", "name": "newcomer"},
    }
    api = ApiObjects()
    api.apply(world.manifests)

    found = predict(api.world(), read_files(written(tmp_path, [binding, *([account] if existing else [])])))
    answer = AccessReview(found.after, time.time(), TOKENS).what_can(asked("ServiceAccount/shop/newcomer"))

    assert bool(answer.tools) is existing


def test_a_grant_that_was_refused_for_want_of_admission_counts_only_once_it_is_written_again(
    tmp_path: Path,
) -> None:
    binding: dict[str, Any] = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "ClusterAgentScopeBinding",
        "metadata": {"name": "smuggled"},
        "spec": {
            "subjects": [{"kind": "User", "issuer": OAUTH, "name": "alice"}],
            "namespaceSelector": {},
            "scopes": ["read", "write", "use"],
        },
    }
    api = ApiObjects()
    api.apply([*random_world(3).of("Namespace", "Tool"), binding])
    refused = {
        "type": "Accepted",
        "status": "False",
        "reason": "AdmissionPolicyMissing",
        "observedGeneration": 1,
    }
    api.objects["ClusterAgentScopeBinding/smuggled"]["status"] = {"conditions": [refused]}
    anew = {**binding, "spec": {**binding["spec"], "scopes": ["read", "use"]}}

    def seen(*changes: dict[str, Any]) -> int:
        found = predict(api.world(), read_files(written(tmp_path, list(changes))) if changes else ())
        assert [n.reason for n in found.not_used] == ([] if changes else ["AdmissionPolicyMissing"])
        return AccessReview(found.after, time.time(), TOKENS).what_can(asked("User/alice")).visible

    assert seen() == 0
    assert seen(anew) > 0
