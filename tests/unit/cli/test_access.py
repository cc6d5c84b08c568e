"""`toolcrib access` over folders of manifests: its lines, its JSON, its exit codes, and what it says of bad input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml

from toolcrib.access.answers import Changes, Explanation, WhatCan, WhoCan
from toolcrib.authorizer import Action
from toolcrib_cli import cluster
from toolcrib_cli import main as cli
from toolcrib_cli.commands import access, access_source
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.prediction.outcome import folder_world, read_files
from toolcrib_cli.prediction.sources import AccessQuestion, Here

EXAMPLES = Path(__file__).parents[3] / "examples"
HEIST, ACCESS = str(EXAMPLES / "heist"), EXAMPLES / "access"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("KUBECONFIG", raising=False)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["access", *arguments])
    return int(ended.value.code or 0)


def table(text: str) -> list[dict[str, str]]:
    head, *rows = (line.split("\t") for line in text.splitlines() if "\t" in line)
    return [dict(zip(head, row, strict=True)) for row in rows]


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, expect: int = 0) -> Any:
    assert run(*arguments, "-o", "json") == expect
    return json.loads(capsys.readouterr().out)


def test_every_line_of_what_can_names_rule_object_and_generation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("what-can", "heist/hacker", "-m", HEIST) == 0
    shown = capsys.readouterr()

    rows = table(shown.out)
    assert [r["TOOL"] for r in rows] == ["heist/file-reader", "heist/simulation-data"]
    for row in rows:
        assert (row["BY"], row["GENERATION"], row["REASON"]) == (
            "AgentScopeBinding heist/hacker",
            "1",
            "granted",
        )
        assert row["RULE"].startswith("grants ")
    assert "ServiceAccount/heist/hacker sees 2 tool(s)." in shown.err
    assert "assumed: the ServiceAccount heist/hacker exists" in shown.err


def test_a_binding_that_is_not_applied_is_counted_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("what-can", "heist/hacker", "-m", HEIST, "--binding", str(ACCESS / "hacker-database.yaml"))

    found = WhatCan.model_validate(answered(capsys, *asked))
    assert run(*asked) == 0
    shown = capsys.readouterr().out

    rows = {t.tool_id: t for t in found.tools}
    assert found.predicted
    assert set(rows) == {"heist/database-query", "heist/file-reader", "heist/simulation-data"}
    new = rows["heist/database-query"]
    assert new.binding is not None
    assert (new.binding.name, new.binding.generation, new.binding.proposed) == ("hacker-database", 1, True)
    assert (new.until, new.limits and new.limits.per_minute) == ("2031-01-01T00:00:00Z", 10)
    assert "AgentScopeBinding heist/hacker-database (proposed)" in shown


def test_hidden_tools_are_listed_with_what_hides_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = WhatCan.model_validate(answered(capsys, "what-can", "heist/hacker", "-m", HEIST, "--hidden"))

    assert {t.tool_id: t.reason.value for t in found.tools} == {
        "heist/calculator": "scope_not_granted",
        "heist/database-query": "scope_not_granted",
        "heist/file-reader": "granted",
        "heist/simulation-data": "granted",
    }
    assert all(t.name is None for t in found.tools if not t.allowed)


def test_the_tools_of_a_namespace_are_counted_apart_from_all(capsys: pytest.CaptureFixture[str]) -> None:
    catalog = EXAMPLES / "catalog"
    some = [catalog / "00-namespace.yaml", catalog / "tools" / "firecrawl.yaml"]
    asked = ("what-can", "heist/hacker", "-m", HEIST, *(word for file in some for word in ("-m", str(file))))

    assert run(*asked, "-n", "heist") == 0
    heist = capsys.readouterr().err
    assert run(*asked, "-n", "catalog", "--hidden") == 0
    elsewhere = capsys.readouterr().err
    assert run(*asked, "-n", "catalogue") == 0
    mistyped = capsys.readouterr().err

    assert "ServiceAccount/heist/hacker sees 2 tool(s) in heist, 2 in all." in heist
    assert "ServiceAccount/heist/hacker sees 0 tool(s) in catalog, 2 in all." in elsewhere
    assert "note:" not in heist + elsewhere
    assert "note: the namespace catalogue has no tools; did you mean catalog?" in mistyped


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (
            ["what-can", "heist/hackr"],
            "no binding names ServiceAccount/heist/hackr; did you mean heist/hacker?",
        ),
        (["what-can", "Agent/heist/hackr"], "no binding names Agent/heist/hackr; did you mean heist/hacker?"),
        (["what-can", "vault/nobody"], "no binding names ServiceAccount/vault/nobody"),
        (["what-can", "heist/hacker", "--scopes", "x"], "the given scopes have no effect"),
        (["what-can", "heist/hacker", "--group", "x"], "the given groups and client have no effect"),
        (
            ["diff", "-f", str(ACCESS / "changes"), "--subject", "heist/safecrackr"],
            "did you mean heist/safecracker?",
        ),
    ],
)
def test_a_name_that_nothing_has_and_an_option_without_effect_are_noted(
    capsys: pytest.CaptureFixture[str], asked: list[str], note: str
) -> None:
    assert run(*asked, "-m", HEIST) == 0
    shown = capsys.readouterr().err
    found = answered(capsys, *asked, "-m", HEIST)

    assert any(line.startswith("note: ") and note in line for line in shown.splitlines())
    assert any(note in text for text in found["notes"])


def test_what_the_asked_change_takes_away_is_not_taken_for_a_misspelt_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("what-can", "heist/hacker", "-m", HEIST, "--delete", "AgentScopeBinding/heist/hacker")

    assert answered(capsys, *asked)["notes"] == ["no binding names ServiceAccount/heist/hacker any more"]
    tools = [a for f in Path(HEIST).glob("*tool*.yaml") for d in yaml.safe_load_all(f.read_text())
             if d and d["kind"] == "Tool" for a in ("--delete", f"Tool/heist/{d['metadata']['name']}")]  # fmt: skip
    assert answered(capsys, *asked, *tools, "-n", "heist")["notes"][0] == (
        "the namespace heist has no tools any more"
    )


def test_a_service_account_that_the_cluster_does_not_have_is_noted() -> None:
    def notes(subject: str) -> tuple[str, ...]:
        return (
            Here(AccessQuestion(), lambda: folder_world(read_files([Path(HEIST)])), "x")
            .what_can(subject, hidden=False)
            .notes
        )

    assert notes("heist/hacker") == ()
    assert notes("heist/hackr") == (
        "no binding names ServiceAccount/heist/hackr; did you mean heist/hacker?",
        "the ServiceAccount heist/hackr does not exist",
    )


def test_an_account_that_bindings_name_and_the_cluster_lacks_is_noted_once(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text((ACCESS / "hacker-database.yaml").read_text().replace("name: hacker\n", "name: ghost\n"))
    source = Here(
        AccessQuestion(bindings=(file,), namespace="heist"),
        lambda: folder_world(read_files([Path(HEIST)])),
        "x",
    )

    assert source.what_can("heist/ghost", hidden=False).notes == (
        "the ServiceAccount heist/ghost does not exist",
    )


def test_a_binding_that_grants_nothing_is_not_said_to_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "heist/hacker", "database_query", "-m", HEIST) == 1

    shown = capsys.readouterr().out
    assert "\tgrants nothing\tscope_not_granted" in shown
    assert "\tpasses\t" not in shown


def test_who_can_lists_each_subject_with_its_binding(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("-b", str(ACCESS / "no-simulation.yaml"))

    found = WhoCan.model_validate(answered(capsys, "who-can", "simulation_data", "-m", HEIST, *changes))
    assert run("who-can", "simulation_data", "-m", HEIST, *changes) == 0
    shown = capsys.readouterr()

    (row,) = found.subjects
    assert (row.who.subject, row.allowed, row.reason.value) == (
        "ServiceAccount/heist/hacker",
        False,
        "denied",
    )
    assert table(shown.out)[0]["BY"] == "AgentScopeBinding heist/no-simulation (proposed)"
    assert "0 subject(s) may call heist/simulation-data." in shown.err


@pytest.mark.parametrize(
    ("subject", "tool", "code", "reason"),
    [
        ("heist/hacker", "file_reader", 0, "granted"),
        ("Agent/heist/hacker", "heist/file-reader", 0, "granted"),
        ("heist/hacker", "database_query", 1, "scope_not_granted"),
        ("heist/planner", "calculator", 1, "no_binding"),
        ("heist/stranger", "file_reader", 1, "no_binding"),
    ],
)
def test_explain_ends_like_can_i_and_shows_each_step(
    capsys: pytest.CaptureFixture[str], subject: str, tool: str, code: int, reason: str
) -> None:
    found = Explanation.model_validate(answered(capsys, "explain", subject, tool, "-m", HEIST, expect=code))
    assert run("explain", subject, tool, "-m", HEIST) == code
    shown = capsys.readouterr().out

    assert (found.allowed, found.reason.value) == (code == 0, reason)
    assert [s.step for s in found.steps] == [1, 2, 3, 4, 5]
    assert shown.startswith("yes: " if code == 0 else "no: ")
    assert found.rule in shown


def test_diff_of_a_folder_names_who_gains_and_loses_what(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("diff", "-m", HEIST, "-f", str(ACCESS / "changes"), "-f", str(ACCESS / "no-simulation.yaml"))
    found = Changes.model_validate(answered(capsys, *asked))
    assert run(*asked, "--exit-code") == 1
    shown = capsys.readouterr().out

    changed = {(s.who.subject, t.tool_id, t.after.reason.value) for s in found.subjects for t in s.tools}
    assert changed == {
        ("ServiceAccount/heist/hacker", "heist/simulation-data", "denied"),
        ("ServiceAccount/heist/safecracker", "heist/database-query", "granted"),
    }
    assert [r["CHANGE"] for r in table(shown)] == ["- lost", "+ gained"]


def test_deletions_count_one_by_one_and_by_prune(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    for file in Path(HEIST).glob("*.yaml"):
        if "hacker" not in file.name:
            (left / file.name).write_text(file.read_text())

    named = Changes.model_validate(
        answered(capsys, "diff", "-m", HEIST, "--delete", "AgentScopeBinding/heist/hacker")
    )
    pruned = Changes.model_validate(answered(capsys, "diff", "-m", HEIST, "-f", str(left), "--prune"))

    assert [(s.who.subject, s.lost) for s in named.subjects] == [("ServiceAccount/heist/hacker", 2)]
    assert pruned.subjects == named.subjects
    assert run("diff", "-m", HEIST, "-f", HEIST, "--prune", "--exit-code") == 0
    assert "No subject affected." in capsys.readouterr().err


def test_a_subject_whose_last_binding_goes_is_still_known_by_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "alice.yaml"
    text = (ACCESS / "hacker-database.yaml").read_text()
    file.write_text(
        text.replace("kind: ServiceAccount", "kind: User\n      issuer: https://login.example").replace(
            "name: hacker\n  scopes", "name: alice\n  scopes"
        )
    )
    gone = ("--delete", "AgentScopeBinding/heist/hacker-database")

    found = answered(capsys, "diff", "-m", HEIST, "-m", str(file), *gone, "--subject", "User/alice")

    assert [(s["who"]["subject"], s["lost"]) for s in found["subjects"]] == [("User/alice", 1)]


@pytest.mark.slow
def test_the_check_of_a_pull_request_runs_on_a_real_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    folder = tmp_path / "manifests"
    folder.mkdir()
    for file in Path(HEIST).glob("*.yaml"):
        (folder / file.name).write_text(file.read_text())
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "base")
    script = [str(ACCESS / "pull-request.sh"), "manifests", "main"]
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}

    same = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    (folder / "41-binding-hacker.yaml").unlink()
    gone = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert same.returncode == 0, same.stderr
    assert gone.returncode == 1, gone.stderr
    assert "ServiceAccount/heist/hacker" in gone.stdout
    further = subprocess.run(
        [*script, "--subject", "heist/safecracker"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (further.returncode, "hacker" in further.stdout) == (0, False), further.stderr

    def compared(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [script[0], *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    folder.rename(tmp_path / "moved")
    new, old = compared("moved", "main"), compared("manifests", "main")
    nowhere, base = compared("none", "main"), compared("moved", "origin/main")

    assert (new.returncode, old.returncode) == (1, 1), new.stderr + old.stderr
    assert "+ gained\tServiceAccount/heist/safecracker" in new.stdout
    assert "- lost\tServiceAccount/heist/safecracker" in old.stdout
    assert (nowhere.returncode, base.returncode) == (2, 2)
    assert "there is no none, neither here nor in main" in nowhere.stderr
    assert "there is no commit origin/main here; fetch it first" in base.stderr
    left_out = compared("moved", "--cluster-issuer", "https://kubernetes.example")
    assert (left_out.returncode, left_out.stdout) == (2, "")
    assert "usage: pull-request.sh FOLDER [BASE" in left_out.stderr


def test_selectors_name_conflicts_and_refused_objects_come_out_as_they_would(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    head = {"apiVersion": "toolcrib.dev/v1alpha1"}
    account = {"kind": "ServiceAccount", "namespace": "heist", "name": "stranger"}
    selecting = {
        **head, "kind": "ClusterAgentScopeBinding", "metadata": {"name": "by-label"},
        "spec": {
            "subjects": [account], "scopes": ["calculator:use"],
            "namespaceSelector": {"matchLabels": {"team": "bank"}},
        },
    }  # fmt: skip
    twin = {
        **head, "kind": "Tool", "metadata": {"namespace": "heist", "name": "calculator-2"},
        "spec": {"name": "calculator", "scopes": ["database:read"], "backend": {"none": {}}},
    }  # fmt: skip
    labelled = {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "heist", "labels": {"team": "bank"}},
    }  # fmt: skip
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump_all([selecting, twin, labelled]))
    asked = ("what-can", "heist/stranger", "-m", HEIST, "-b", str(file))

    assert run(*asked) == 0
    untrusted = capsys.readouterr()
    assert run(*asked, "--trusted-namespace-label", "team") == 0
    trusted = capsys.readouterr()

    assert table(untrusted.out) == []
    assert "not in effect: ClusterAgentScopeBinding by-label: UntrustedLabel" in untrusted.err
    assert [r["TOOL"] for r in table(trusted.out)] == ["heist/calculator"]
    assert "not in effect: Tool heist/calculator-2: NameConflict" in trusted.err


def test_a_users_token_is_described_by_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    iss = "https://login.example"
    binding = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": "developers", "namespace": "heist"},
        "spec": {
            "subjects": [{"kind": "Group", "issuer": iss, "name": g} for g in ("dev", "system:masters")],
            "scopes": ["calculator:use", "file_reader:use"],
        },
    }
    file = tmp_path / "new.json"
    file.write_text(json.dumps(binding))
    alice = ("what-can", "User/alice", "--issuer", iss, "-m", HEIST, "-b", str(file))

    def seen(*more: str) -> list[str]:
        return [t["tool_id"] for t in answered(capsys, *alice, *more)["tools"]]

    assert seen() == []
    assert seen("--group", "system:masters") == [], "groups of that name are the cluster's"
    assert seen("--group", "dev") == ["heist/calculator", "heist/file-reader"]
    assert seen("--group", "dev", "--scopes", "calculator:use other") == ["heist/calculator"]
    assert seen("--group", "dev", "--scopes", "") == []
    found = answered(capsys, "what-can", "Group/dev", "-m", HEIST, "-b", str(file))
    assert found["who"]["issuer"] == iss, "the bindings name it with one issuer"
    assert found["assumptions"] == ["the token carries every scope that its bindings ask for"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["what-can", "bot", "-m", HEIST], Exit.USAGE, "ServiceAccount/NAMESPACE/NAME"),
        (["what-can", "User/alice", "-m", HEIST], Exit.USAGE, "hint: --issuer"),
        (["what-can", "heist/hacker"], Exit.USAGE, "--kubeconfig FILE, --manifests FOLDER or --registry URL"),
        (
            ["what-can", "heist/hacker", "-m", HEIST, "--action", "fly"],
            Exit.USAGE,
            "not one of 'list', 'search'",
        ),
        (
            ["what-can", "heist/hacker", "-m", HEIST, "--registry", "http://127.0.0.1:1"],
            Exit.USAGE,
            "--manifests",
        ),
        (["who-can", "calculatr", "-m", HEIST], Exit.NOT_PERMITTED, "did you mean calculator"),
        (["diff", "-m", HEIST], Exit.USAGE, "no change specified"),
        (["diff", "-m", HEIST, "--delete", "Pod/a/b"], Exit.USAGE, "not Kind/namespace/name"),
        (["diff", "-m", HEIST, "--delete", "Tool/heist/none"], Exit.USAGE, "there is no Tool heist/none"),
        (
            ["diff", "-m", HEIST, "-f", "/no/such/file.yaml"],
            Exit.USAGE,
            "/no/such/file.yaml: cannot be read",
        ),
        (
            ["who-can", "calculator", "--kubeconfig", "/no/such/file"],
            Exit.USAGE,
            "there is no kubeconfig /no/such/file",
        ),
        (["who-can", "calculator", "--context", "x"], Exit.USAGE, "which cluster?"),
    ],
)
def test_bad_input_is_named_with_a_remedy(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert run(*arguments) == code
    assert words in capsys.readouterr().err


def test_broken_yaml_is_named_with_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text("kind: AgentScopeBinding\nspec: [")
    worse = tmp_path / "worse.yaml"
    worse.write_text((ACCESS / "hacker-database.yaml").read_text().replace("scopes:", "scope:"))

    assert run("diff", "-m", HEIST, "-f", str(file)) == Exit.USAGE
    assert f"{file}:3: not valid YAML" in capsys.readouterr().err
    assert run("diff", "-m", HEIST, "-f", str(worse), "--exit-code") == Exit.USAGE
    assert run("explain", "heist/hacker", "calculator", "-m", HEIST, "-b", str(worse)) == Exit.USAGE
    shown = capsys.readouterr().err
    assert f"{worse}:12: spec.scope: unknown field" in shown


def test_a_cluster_that_does_not_answer_is_told_apart_from_missing_rights(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )  # fmt: skip

    with pytest.raises(CliError) as error:
        cluster.read_world(kubeconfig=str(kubeconfig))
    with pytest.raises(CliError) as unknown:
        cluster.read_world(kubeconfig=str(kubeconfig), context="none")

    assert (error.value.code, "no answer from the API server" in error.value.message) == (
        Exit.UNREACHABLE,
        True,
    )
    assert (unknown.value.code, "none" in unknown.value.message) == (Exit.USAGE, True)


def test_who_holds_a_scope_with_reach_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("who-holds", "database:read", "-m", HEIST, "--binding", str(ACCESS / "hacker-database.yaml"))

    assert run(*asked) == 0
    shown = capsys.readouterr()

    rows = {(r["SUBJECT"], r["BY"]): r for r in table(shown.out)}
    new = rows["ServiceAccount/heist/hacker", "AgentScopeBinding heist/hacker-database (proposed)"]
    assert (new["HOLDS"], new["NAMESPACES"], new["SERVERS"]) == ("yes", "heist", "all")
    assert new["EXPIRES"] == "2031-01-01T00:00:00Z"
    assert "hold database:read; 1 tool(s) have it." in shown.err


def test_scopes_are_completed_from_what_the_command_line_names() -> None:
    context = typer.Context(typer.main.get_command(access.app), info_name="who-holds")
    context.params = {"manifests": [HEIST]}

    assert access_source.completed_scopes(context, "calc") == ["calculator:use"]
    context.params = {"manifests": ["/no/such/folder"]}
    assert access_source.completed_scopes(context, "calc") == []
    context.params = {}
    assert access_source.completed_scopes(context, "calc") == []


def test_the_actions_that_can_be_asked_about_are_those_of_the_authorizer() -> None:
    assert set(get_args(access.Action)) == set(Action)


@pytest.mark.parametrize("command", ["what-can", "who-can", "who-holds", "explain", "diff"])
def test_every_question_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    assert run(command, "--help") == 0
    shown = capsys.readouterr().out
    assert f"toolcrib access {command}" in shown
    assert "Examples" in shown


MISTYPED = """
apiVersion: toolcrib.dev/v1alpha1
kind: AgentScopeBinding
metadata: {name: typo, namespace: heist}
spec:
  subjects: [{kind: ServiceAccount, name: hackr}]
  scopes: ["calculator:use"]
"""
GONE = "there is no ServiceAccount heist/hackr; did you mean heist/hacker?"


def test_a_mistyped_account_is_no_holder_and_may_not_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo.yaml"
    file.write_text(MISTYPED)
    where = ("-m", HEIST, "-m", str(file))

    holders = answered(capsys, "who-holds", "calculator:use", *where)["holders"]
    said = {h["who"]["subject"]: (h["holds"], h["state"], h["detail"]) for h in holders}
    assert said["ServiceAccount/heist/hackr"] == (False, "account_gone", f"SubjectNotFound: {GONE}")
    assert said["ServiceAccount/heist/safecracker"] == (True, "in_effect", "")
    subjects = answered(capsys, "who-can", "calculator", *where)["subjects"]
    able = {s["who"]["subject"]: (s["allowed"], s["reason"], s["rule"]) for s in subjects}
    assert able["ServiceAccount/heist/hackr"] == (False, "account_gone", f"SubjectNotFound: {GONE}")
    assert able["ServiceAccount/heist/safecracker"][0] is True
    assert run("who-can", "calculator", *where) == 0
    assert "1 subject(s) may call heist/calculator." in capsys.readouterr().err
    assert GONE in answered(capsys, "what-can", "heist/hackr", *where)["notes"]


def test_where_no_manifest_declares_accounts_nobody_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(MISTYPED.replace("name: hackr", "name: hackr, namespace: elsewhere"))
    (found,) = answered(capsys, "who-holds", "calculator:use", "-m", str(file))["holders"]
    assert found["holds"] is True
