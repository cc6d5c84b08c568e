"""`/v1/access-review`: everything for holders of registry:admin, nothing for anybody else; exact, bounded, on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import manifests
from registry_harness import ISSUER, ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib.access import subjects
from toolcrib.access.answers import Changes, Explanation, WhatCan, WhoCan, WhoHolds
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Tokens
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, PublishedSubject, Revision
from toolcrib_cli import main as cli
from toolcrib_registry.settings_sections import Discovery

OAUTH = "https://login.test"
IDE = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="ide")
TOOLS = [
    tool("calculator"),
    tool("read_file", scopes=("files:read",), server="files"),
    tool("delete_file", scopes=("files:read",), server="files"),
    tool("secret_plan"),
]
GRANTS = [
    binding("bot"),
    binding("reader", ["files:read"], deny=("files:delete_*",), generation=3),
    binding("ide", ["calculator:use"], subjects=(IDE,)),
    binding("admin", ["registry:admin"], namespace=None),
    binding("writer", ["registry:write"], namespace=None),
]
ISSUERS = (
    Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True),
    Issuer(issuer=OAUTH, audience=("toolcrib",)),
)


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry(TOOLS, GRANTS, issuers=ISSUERS) as r:
        yield r


def ask(r: RunningRegistry, *, expect: int = 200, who: str = "admin", **params: Any) -> dict[str, Any]:
    answer = r.http.get(r.url + "/v1/access-review", params=params, headers=r.auth("team", who))
    assert answer.status_code == expect, answer.text
    found: dict[str, Any] = answer.json()
    return found


def post(r: RunningRegistry, body: Any, *, expect: int = 200, who: str = "admin") -> dict[str, Any]:
    answer = r.http.post(r.url + "/v1/access-review", json=body, headers=r.auth("team", who))
    assert answer.status_code == expect, answer.text
    found: dict[str, Any] = answer.json()
    return found


def manifest(name: str, account: str, scopes: list[str], **spec: Any) -> dict[str, Any]:
    subjects = [{"kind": "ServiceAccount", "name": account}]
    return manifests.binding(name, scopes, "team", subjects=subjects, **spec)


def test_what_a_subject_sees_is_what_it_lists_itself(registry: RunningRegistry) -> None:
    for name in ("bot", "reader", "nobody"):
        listed = registry.http.get(registry.url + "/v1/tools", headers=registry.auth("team", name)).json()

        found = WhatCan.model_validate(ask(registry, subject=f"team/{name}"))

        assert [(t.tool_id, t.name) for t in found.tools] == [
            (t["tool_id"], t["name"]) for t in listed["tools"]
        ]
        assert found.visible == len(listed["tools"])


def test_every_line_names_rule_object_and_generation(registry: RunningRegistry) -> None:
    found = WhatCan.model_validate(ask(registry, subject="team/reader", hidden="true"))

    rows = {t.tool_id: t for t in found.tools}
    assert set(rows) == {t.tool_id for t in TOOLS}
    allowed, denied, hidden = rows["team/read-file"], rows["team/delete-file"], rows["team/secret-plan"]
    assert allowed.binding is not None
    assert (allowed.binding.ref, allowed.binding.uid, allowed.binding.generation, allowed.scopes) == (
        "AgentScopeBinding team/reader", "uid-team-reader", 3, ("files:read",),
    )  # fmt: skip
    assert (denied.reason, denied.binding, denied.name) == ("denied", allowed.binding, None)
    assert (hidden.reason, hidden.step) == ("scope_not_granted", 4)


def test_who_can_and_explain_give_the_same_verdict(registry: RunningRegistry) -> None:
    who = WhoCan.model_validate(ask(registry, tool="calculator"))

    rows = {s.who.subject: s for s in who.subjects}
    assert set(rows) == {"ServiceAccount/team/bot", "OAuthClient/ide"}
    assert (rows["OAuthClient/ide"].who.issuer, rows["OAuthClient/ide"].token_scopes) == (
        OAUTH,
        ("calculator:use",),
    )
    for subject, row in rows.items():
        told = Explanation.model_validate(
            ask(registry, subject=subject, tool="team/calculator", action="load")
        )
        assert (told.allowed, told.reason, told.binding) == (row.allowed, row.reason, row.binding)
        assert told.action == "load"
    without = ask(registry, subject="OAuthClient/ide", tool="calculator", scopes="other")
    assert (without["allowed"], without["reason"], without["step"]) == (False, "token_lacks_scope", 5)


def test_who_holds_a_scope_is_asked_like_the_other_questions(registry: RunningRegistry) -> None:
    found = WhoHolds.model_validate(ask(registry, scope="calculator:use"))

    assert {(h.who.subject, h.holds, h.token_needs_scope) for h in found.holders} == {
        ("ServiceAccount/team/bot", True, False),
        ("OAuthClient/ide", True, True),
    }
    more = post(registry, {"scope": "calculator:use", "bindings": [manifest("new", "x", ["calculator:use"])]})
    assert {h["who"]["subject"] for h in more["holders"] if h["binding"]["proposed"]} == {
        "ServiceAccount/team/x"
    }
    page = ask(registry, scope="calculator:use", limit=1)
    rest = ask(registry, scope="calculator:use", limit=1, cursor=page["next_cursor"])
    assert [page["holders"][0], rest["holders"][0]] == ask(registry, scope="calculator:use")["holders"]


def test_the_shape_of_the_answers_is_fixed(registry: RunningRegistry) -> None:
    head = {"question", "revision", "at", "predicted", "assumptions", "notes", "action"}
    rule = {
        "allowed", "reason", "step", "rule", "binding", "scopes", "others", "token_scopes", "until", "limits",
    }  # fmt: skip
    grant = {"bindings": [manifest("new", "bot", ["files:read"])]}

    what, who = ask(registry, subject="team/reader"), ask(registry, tool="calculator")
    why, diff = ask(registry, subject="team/reader", tool="read_file"), post(registry, grant)

    assert set(what) == {*head, "who", "visible", "tools", "ambiguous", "next_cursor"}
    assert set(what["tools"][0]) == {*rule, "tool_id", "name"}
    assert set(what["tools"][0]["binding"]) == {"kind", "namespace", "name", "uid", "generation", "proposed"}
    assert set(what["who"]) == {"subject", "kind", "namespace", "name", "issuer"}
    assert set(who) == {*head, "tool_id", "subjects", "next_cursor"}
    assert set(who["subjects"][0]) == {*rule, "who"}
    assert set(why) == {*head, *rule, "who", "tool_id", "name", "steps", "bindings", "fallbacks"}
    assert set(why["steps"][0]) == {"step", "title", "verdict", "detail"}
    assert set(why["bindings"][0]) == {"binding", "verdict", "reason", "rule", "scopes"}
    assert set(diff) == {*head, "subjects", "next_cursor"}
    assert set(diff["subjects"][0]) == {"who", "gained", "lost", "changed", "tools"}
    assert set(diff["subjects"][0]["tools"][0]) == {"tool_id", "change", "before", "after"}


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (None, 401, "unauthenticated"),
        ("forged", 401, "invalid_token"),
        (("bot", None), 403, "not_permitted"),
        (("writer", None), 403, "not_permitted"),
        (("bot", "registry:write"), 403, "not_permitted"),
        (("bot", ""), 403, "not_permitted"),
        (("admin", ""), 403, "not_permitted"),
        (("admin", None), 200, ""),
        (("nobody", "registry:admin"), 200, ""),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_holders_of_registry_admin_get_an_answer(
    registry: RunningRegistry, headers: Any, status: int, code: str, method: str
) -> None:
    sent = {}
    if headers == "forged":
        sent = {"Authorization": "Bearer e30.e30.x"}
    elif headers is not None:
        sent = registry.auth("team", headers[0], scopes=headers[1])
    url = registry.url + "/v1/access-review"
    if method == "GET":
        answer = registry.http.get(url, params={"tool": "secret_plan"}, headers=sent)
    else:
        answer = registry.http.post(url, json={"tool": "secret_plan"}, headers=sent)

    assert answer.status_code == status
    if code:
        assert answer.json()["code"] == code


def test_who_may_not_ask_learns_nothing_from_the_refusal(registry: RunningRegistry) -> None:
    """Whatever it names, there or not, understood or not: the same bytes."""
    questions: list[dict[str, str]] = [
        {"subject": "team/admin"}, {"tool": "secret_plan"}, {"tool": "no_such_tool"}, {"subject": "???"},
        {"subject": "team/bot", "tool": "calculator"}, {"subject": "team/bot", "cursor": "zzz"}, {},
    ]  # fmt: skip
    url, headers = registry.url + "/v1/access-review", registry.auth("team", "bot")

    got = {registry.http.get(url, params=q, headers=headers).content for q in questions}
    sent = {registry.http.post(url, json=q, headers=headers).content for q in questions}
    sent.add(registry.http.post(url, json={"bindings": [{"kind": "Nonsense"}]}, headers=headers).content)

    assert len(got | sent) == 1


@pytest.mark.parametrize("anonymous", ["none", "list"])
def test_a_caller_of_no_trusted_issuer_is_nobody(anonymous: str) -> None:
    """A real token of that issuer is refused with 401; a deny binding with the typo is found by who-can."""
    mistyped = PublishedSubject(kind=SubjectKind.USER, issuer=f"{OAUTH}/", name="alice")
    right = PublishedSubject(kind=SubjectKind.USER, issuer=OAUTH, name="alice")
    with running_registry(
        TOOLS,
        [
            *GRANTS,
            binding("typo", [], deny=("calculator",), subjects=(mistyped,)),
            binding("alice", ["calculator:use"], subjects=(right,)),
        ],
        issuers=ISSUERS,
        discovery=Discovery(anonymous=anonymous),
    ) as r:
        alice: dict[str, Any] = {"subject": "User/alice", "issuer": f"{OAUTH}/", "scopes": "calculator:use"}
        words = f"this registry does not trust the issuer {OAUTH}/"
        for action in ("call", "list"):
            found = Explanation.model_validate(ask(r, **alice, tool="calculator", action=action))
            assert (found.allowed, found.reason, found.rule) == (False, "no_identity", words)
            assert (found.steps[0].verdict, found.steps[0].detail) == ("failed", words)
        hidden = WhatCan.model_validate(ask(r, **alice, hidden="true"))
        rows = WhoCan.model_validate(ask(r, tool="calculator")).subjects

        assert (hidden.visible, {t.rule for t in hidden.tools}) == (0, {words})
        said = {s.who.issuer: (s.allowed, s.rule) for s in rows if s.who.name == "alice"}
        assert said[f"{OAUTH}/"] == (False, words)
        assert said[OAUTH][0] is True
        assert ask(r, **{**alice, "issuer": OAUTH}, tool="calculator")["allowed"] is True


def test_without_a_clusters_issuer_no_service_account_is_anybody() -> None:
    snapshot = Snapshot().apply(
        Publish(to=Revision(epoch=1, seq=1), tools=tuple(TOOLS), bindings=(binding("bot"),))
    )
    tokens = Tokens(policies={OAUTH: ScopesPolicy.INTERSECTION}, closed=True)

    found = AccessReview(snapshot, 0.0, tokens).what_can(subjects.parse("team/bot"), hidden=True)

    assert {t.rule for t in found.tools} == {"this registry trusts no cluster issuer"}


def test_bindings_that_are_not_applied_are_counted_and_change_nothing(registry: RunningRegistry) -> None:
    grant = manifest("new", "bot", ["files:read"], tools={"deny": ["calc*"]})

    before = ask(registry, subject="team/bot")
    would = WhatCan.model_validate(post(registry, {"subject": "team/bot", "bindings": [grant]}))
    after = ask(registry, subject="team/bot")

    assert would.predicted
    assert [t.tool_id for t in would.tools] == ["team/delete-file", "team/read-file"]
    assert all(t.binding and t.binding.proposed and t.binding.generation == 1 for t in would.tools)
    assert (
        [t["tool_id"] for t in before["tools"]]
        == [t["tool_id"] for t in after["tools"]]
        == ["team/calculator"]
    )


def test_a_binding_of_the_same_name_is_replaced_and_keeps_its_uid(registry: RunningRegistry) -> None:
    body = {
        "subject": "team/reader",
        "tool": "delete_file",
        "bindings": [manifest("reader", "reader", ["files:read"])],
    }

    found = Explanation.model_validate(post(registry, body))

    assert found.allowed
    assert found.binding is not None
    assert (found.binding.uid, found.binding.generation, found.binding.proposed) == (
        "uid-team-reader",
        4,
        True,
    )


def test_without_subject_and_tool_the_answer_is_what_would_change(registry: RunningRegistry) -> None:
    body = {
        "bindings": [manifest("extra", "bot", ["files:read"])],
        "delete": ["AgentScopeBinding/team/ide"],
    }

    found = Changes.model_validate(post(registry, body))

    rows = {s.who.subject: (s.gained, s.lost) for s in found.subjects}
    assert rows == {"ServiceAccount/team/bot": (2, 0), "OAuthClient/ide": (0, 1)}


def test_whom_the_proposal_takes_the_last_binding_is_not_taken_for_misspelt(
    registry: RunningRegistry,
) -> None:
    gone = {"delete": ["AgentScopeBinding/team/reader"]}

    known, misspelt = (post(registry, {"subject": f"team/{s}", **gone}) for s in ("reader", "wroter"))

    assert known["notes"] == ["no binding names ServiceAccount/team/reader any more"]
    assert misspelt["notes"] == ["no binding names ServiceAccount/team/wroter; did you mean team/writer?"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"bindings": [{"kind": "Tool"}]}, "bindings[0].apiVersion", "expected"),
        ({"bindings": [manifest("x", "bot", [])]}, "bindings[0].spec.scopes", "empty list"),
        (
            {"bindings": [manifest("x", "bot", ["a"], colour="red")]},
            "bindings[0].spec.colour",
            "unknown field",
        ),
        (
            {"bindings": [manifest("x", "bot", ["registry:admin"])]},
            "bindings[0].spec",
            "powers of the registry",
        ),
        ({"bindings": [manifest("x", "bot", ["a"])] * 2}, "bindings[1].metadata.name", "twice"),
        ({"delete": ["AgentScopeBinding/team/none"]}, "delete[0]", "no binding"),
        (
            {
                "bindings": [
                    {
                        **manifest("x", "bot", ["a"]),
                        "kind": "ClusterAgentScopeBinding",
                        "metadata": {"name": "x"},
                        "spec": {
                            "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": "bot"}],
                            "scopes": ["a"],
                            "namespaceSelector": {"matchLabels": {"tier": "gold"}},
                        },
                    }
                ]
            },
            "bindings[0].spec.namespaceSelector",
            "does not know the label",
        ),
    ],
)
def test_a_refused_manifest_is_named_with_its_field(
    registry: RunningRegistry, body: dict[str, Any], field: str, words: str
) -> None:
    found = post(registry, {"subject": "team/bot", **body}, expect=400)

    assert found["code"] == "invalid_request"
    assert any(e["field"] == field and words in e["message"] for e in found["errors"]), found["errors"]


@pytest.mark.parametrize(
    ("params", "status", "code", "words"),
    [
        ({}, 400, "invalid_request", "Specify `subject`, `tool`"),
        ({"scope": "files:read", "tool": "calculator"}, 400, "invalid_request", "Specify `scope` without"),
        ({"subject": "bot"}, 400, "invalid_request", "ServiceAccount/NAMESPACE/NAME"),
        (
            {"subject": "User/alice", "issuer": OAUTH, "tool": "calculater"},
            404,
            "tool_not_found",
            "calculater",
        ),
        ({"subject": "team/bot", "action": "fly"}, 400, "invalid_request", "action"),
        ({"subject": "team/bot", "limit": "0"}, 400, "invalid_request", "limit"),
        ({"subject": "team/bot", "cursor": "e30"}, 400, "invalid_cursor", "Invalid cursor"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(
    registry: RunningRegistry, params: dict[str, str], status: int, code: str, words: str
) -> None:
    found = ask(registry, expect=status, **params)

    assert found["code"] == code
    assert words in found["detail"]
    if code == "tool_not_found":
        assert "calculator" in found["close"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "subject=OAuthClient/ide&tool=calculator&scope=other",
            "For the scopes of a token, specify `scopes`",
        ),
        ("subject=OAuthClient/ide&tool=calculator&scops=other", "'scops': did you mean scopes?"),
        ("subject=team/bot&groups=dev", "'groups': did you mean group?"),
        ("subjekt=team/bot", "'subjekt': did you mean subject?"),
        ("subject=team/bot&bindings=x", "Parameters are subject, tool, scope, action,"),
        (
            "subject=OAuthClient/ide&tool=calculator&scopes=a&scopes=calculator:use",
            "The parameter scopes appears more than once",
        ),
    ],
)
def test_a_parameter_that_there_is_not_is_refused_instead_of_passed_over(
    registry: RunningRegistry, query: str, said: str
) -> None:
    url = f"{registry.url}/v1/access-review?{query}"

    answer = registry.http.get(url, headers=registry.auth("team", "admin"))
    barred = registry.http.get(url, headers=registry.auth("team", "bot"))

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert said in answer.json()["detail"]
    assert barred.status_code == 403, "only who may ask is told"


def test_several_groups_are_several_parameters(registry: RunningRegistry) -> None:
    url = f"{registry.url}/v1/access-review?subject=User/alice&issuer={OAUTH}&group=a&group=b"

    assert registry.http.get(url, headers=registry.auth("team", "admin")).status_code == 200


def test_pages_hold_everything_once_and_end_with_the_revision() -> None:
    tools = [tool(f"tool_{i:04}", scopes=("many:use",)) for i in range(25)]
    grants = [
        binding("bot", ["many:use"]),
        *GRANTS[3:4],
        *(binding(f"b{i}", ["many:use"]) for i in range(12)),
    ]
    with running_registry(tools, grants) as r:
        for params, rows, key in (
            ({"subject": "team/bot"}, "tools", "tool_id"),
            ({"tool": "tool_0000"}, "subjects", "who"),
        ):
            whole = ask(r, **params, limit=1000)
            found: list[Any] = []
            cursor: str | None = None
            while True:
                page = ask(r, **params, limit=4, **({"cursor": cursor} if cursor else {}))
                assert len(page[rows]) <= 4
                found += page[rows]
                if page["next_cursor"] is None:
                    break
                cursor = page["next_cursor"]
            assert [t[key] for t in found] == [t[key] for t in whole[rows]]
        r.publish([tool("another")])
        assert ask(r, expect=409, subject="team/bot", cursor=cursor)["code"] == "cursor_stale"


def test_a_review_is_on_record_and_counted_with_who_asked_about_whom(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with running_registry(TOOLS, GRANTS, decision_log=str(path)) as r:
        ask(r, subject="team/reader", tool="delete_file")
        ask(r, expect=403, who="bot", subject="team/admin")
        metrics = r.metrics()
    records = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    asked, refused = (x for x in records if x["action"] == "access-review")

    assert (asked["subject"], asked["tool"], asked["allowed"], asked["question"]) == (
        "system:serviceaccount:team:admin", "team/reader delete_file", True, "explain",
    )  # fmt: skip
    assert "outcome" not in asked, "nothing failed"
    assert (refused["subject"], refused["tool"], refused["allowed"], refused["reason"]) == (
        "system:serviceaccount:team:bot", "team/admin", False, "scope_not_granted",
    )  # fmt: skip
    for labels in ('allowed="true",reason="granted"', 'allowed="false",reason="scope_not_granted"'):
        assert f'toolcrib_decisions_total{{action="access-review",{labels}}} 1.0' in metrics


def test_a_policy_that_is_too_old_answers_no_review() -> None:
    clock = ManualClock()
    with running_registry(TOOLS, GRANTS, clock=clock, policy_max_age=60) as r:
        clock.advance(61)
        assert ask(r, expect=503, subject="team/bot")["code"] == "policy_stale"


def test_power_ends_with_its_binding() -> None:
    with running_registry(TOOLS, GRANTS) as r:
        ask(r, subject="team/bot")
        r.publish(remove_bindings=["uid-None-admin"])
        ask(r, expect=403, subject="team/bot")


@pytest.mark.slow
def test_the_command_line_asks_a_registry_and_gets_every_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = [tool(f"tool_{i}", scopes=("many:use",)) for i in range(2_100)]
    file = tmp_path / "new.json"
    file.write_text(orjson.dumps(manifest("new", "bot", ["many:use"])).decode())
    unwanted = tmp_path / "tool.yaml"
    unwanted.write_text(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: x}\n"
        "spec: {scopes: [a], backend: {none: {}}}"
    )

    def run(r: RunningRegistry, who: str, *arguments: str) -> tuple[int, Any, str]:
        monkeypatch.setenv("TOOLCRIB_TOKEN", r.token("team", who))
        with pytest.raises(SystemExit) as ended:
            cli.main(["access", *arguments, "--registry", r.url, "-o", "json"])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), orjson.loads(shown.out or "null"), shown.err

    with running_registry([*TOOLS, *tools], GRANTS) as r:
        code, seen, _ = run(r, "admin", "what-can", "team/bot", "--binding", str(file))
        assert (code, len(seen["tools"]), seen["next_cursor"], seen["visible"]) == (0, 2_101, None, 2_101)
        code, who, _ = run(r, "admin", "who-can", "calculator")
        assert (code, [s["who"]["subject"] for s in who["subjects"]]) == (
            0, ["OAuthClient/ide", "ServiceAccount/team/bot"],
        )  # fmt: skip
        code, held, _ = run(r, "admin", "who-holds", "calculator:use")
        assert (code, [h["who"]["subject"] for h in held["holders"]]) == (
            0, ["OAuthClient/ide", "ServiceAccount/team/bot"],
        )  # fmt: skip
        code, why, _ = run(r, "admin", "explain", "team/bot", "secret_plan")
        assert (code, why["reason"]) == (1, "scope_not_granted")
        code, would, _ = run(r, "admin", "diff", "-f", str(file), "--subject", "team/bot")
        assert (code, [s["gained"] for s in would["subjects"]]) == (0, [2_100])
        code, nothing, _ = run(r, "admin", "diff", "-f", str(file), "--subject", "team/reader")
        assert (code, nothing["subjects"]) == (0, [])
        code, _, said = run(r, "admin", "diff", "-f", str(unwanted))
        assert (code, "answers about bindings alone, not about a Tool" in said) == (2, True)
        code, _, said = run(r, "admin", "diff", "--delete", "AgentScopeBinding/team/none")
        assert (code, "delete[0]: no binding" in said) == (2, True)
        code, _, said = run(r, "bot", "who-can", "calculator")
        assert (code, "registry:admin" in said) == (4, True)
        code, _, said = run(r, "admin", "who-can", "calculater")
        assert (code, "did you mean calculator" in said) == (4, True)
