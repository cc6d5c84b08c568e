"""Groups of service accounts belong to the cluster's issuer alone: `toolcrib access` never takes another for it unsaid."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib_cli import cluster
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.prediction.outcome import folder_world, read_files
from toolcrib_cli.prediction.sources import AccessQuestion, Here, cluster_source, folder_source
from toolcrib_registry.identity.issuer.local import ISSUER as LOCAL

HEIST = Path(__file__).parents[3] / "examples" / "heist"
OURS, OTHER = "https://kubernetes.example", "https://accounts.example.com"
UNTOUCHED = {"heist/file-reader", "heist/simulation-data"}
CHANGED = UNTOUCHED - {"heist/file-reader"} | {"heist/database-query"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """For the agents of the heist, if OTHER is the cluster's issuer: one tool more, one less."""
    return binding(tmp_path, OTHER)


def binding(folder: Path, issuer: str) -> Path:
    manifest = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": f"agents-of-{issuer.partition('//')[2]}", "namespace": "heist"},
        "spec": {
            "subjects": [{"kind": "Group", "issuer": issuer, "name": "system:serviceaccounts:heist"}],
            "scopes": ["database:read"],
            "tools": {"deny": ["file_reader"]},
        },
    }
    file = folder / f"{issuer.partition('//')[2]}.json"
    file.write_text(json.dumps(manifest))
    return file


def seen(source: Here) -> tuple[set[str], list[str]]:
    """The tools of heist/hacker, and what is assumed of the cluster's issuer."""
    found = source.what_can("heist/hacker", hidden=False)
    return {t.tool_id for t in found.tools}, [a for a in found.assumptions if "issuer" in a]


def unsaid(*files: Path, delete: tuple[str, ...] = ()) -> Here:
    """Asked of a cluster whose API server does not tell its issuer."""
    return Here(AccessQuestion(bindings=files, delete=delete), lambda: folder_world(read_files([HEIST])), "x")


def test_in_a_folder_the_issuer_is_that_of_the_local_mode_whatever_bindings_name(
    file: Path, tmp_path: Path
) -> None:
    tools, assumed = seen(folder_source(AccessQuestion(bindings=(file,)), [HEIST]))
    own = seen(folder_source(AccessQuestion(bindings=(binding(tmp_path, LOCAL),)), [HEIST]))

    assert tools == UNTOUCHED
    assert assumed == [
        f"the cluster's issuer is {LOCAL}, as in the local mode; groups of service accounts of {OTHER} have no members "
        "(--cluster-issuer says which it is)"
    ]
    assert folder_source(AccessQuestion(bindings=(file,)), [HEIST]).diff(None).subjects == ()
    assert own == (
        CHANGED,
        [
            f"the cluster's issuer is {LOCAL}, as in the local mode (--cluster-issuer says which it is)",
        ],
    )
    assert seen(folder_source(AccessQuestion(), [HEIST]))[1] == [], "no binding names such a group"


def test_an_issuer_that_is_said_is_taken_and_not_assumed(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*more: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            cli.main(
                [
                    "access",
                    "what-can",
                    "heist/hacker",
                    "-m",
                    str(HEIST),
                    "-b",
                    str(file),
                    "-o",
                    "json",
                    *more,
                ]
            )
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    said, other = asked("--cluster-issuer", OTHER), asked("--cluster-issuer", OURS)

    assert {t["tool_id"] for t in said["tools"]} == CHANGED
    assert {t["tool_id"] for t in other["tools"]} == UNTOUCHED
    assert said["assumptions"] == ["the ServiceAccount heist/hacker exists"]
    assert other["assumptions"] == [*said["assumptions"], membersless(OURS)]


def membersless(issuer: str) -> str:
    return f"bindings name groups of service accounts of {OTHER}, not of {issuer}, the cluster's issuer: these have no members"


def test_an_issuer_that_the_api_server_told_is_believed_and_groups_of_others_are_named(
    file: Path, tmp_path: Path
) -> None:
    def told(*files: Path) -> Here:
        world = folder_world(read_files([HEIST]))
        return Here(AccessQuestion(bindings=files), lambda: world, "x", cluster_issuer=OURS)

    only, both = told(file), told(file, binding(tmp_path, OURS))

    assert (seen(only), only.doubted) == ((UNTOUCHED, [membersless(OURS)]), ())
    assert seen(both) == (
        CHANGED,
        [f"the cluster's issuer is {OURS}; groups of service accounts of {OTHER} have no members"],
    )


def test_an_issuer_that_the_api_server_does_not_tell_is_guessed_from_bindings_and_said_so(
    file: Path, tmp_path: Path
) -> None:
    guessed = f"the cluster's issuer is {OTHER}, since bindings name it (--cluster-issuer says which it is)"
    another = binding(tmp_path, OURS)

    assert seen(unsaid(file)) == (CHANGED, [guessed])
    assert unsaid(file).diff(None).assumptions == (guessed,)
    assert seen(unsaid(file, another)) == (
        UNTOUCHED,
        [
            f"the cluster's issuer is not known, and bindings name {OTHER}, {OURS}: no group of service accounts has "
            "members (--cluster-issuer says which it is)"
        ],
    )


def test_a_group_that_only_a_deleted_binding_named_loses_its_tools(file: Path) -> None:
    gone = Here(
        AccessQuestion(delete=("AgentScopeBinding/heist/agents-of-accounts.example.com",)),
        lambda: folder_world(read_files([HEIST, file])),
        "x",
    )

    (hacker,) = gone.diff("heist/hacker").subjects

    assert {(t.tool_id, t.change) for t in hacker.tools} == {
        ("heist/file-reader", "gained"),
        ("heist/database-query", "lost"),
    }


def test_an_exit_code_vouches_for_no_groups_of_an_issuer_that_may_be_the_clusters(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(new: Path, *more: str) -> int:
        with pytest.raises(SystemExit) as exited:
            cli.main(["access", "diff", "-m", str(HEIST), "-f", str(new), "--exit-code", *more])
        return int(exited.value.code or 0)

    assert ended(file) == Exit.USAGE
    assert f"the cluster's issuer is not known, and bindings name groups of service accounts of {OTHER}" in (
        capsys.readouterr().err
    )
    assert ended(file, "--cluster-issuer", OTHER) == Exit.FAILED
    assert ended(binding(tmp_path, LOCAL)) == Exit.FAILED


def test_an_exit_code_vouches_for_nothing_where_no_binding_names_the_issuer_that_was_said(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*more: str) -> int:
        with pytest.raises(SystemExit) as exited:
            cli.main(["access", "diff", "-m", str(HEIST), "-f", str(file), "--exit-code", *more])
        return int(exited.value.code or 0)

    for mistyped in (f"{OTHER}/", "foo"):
        assert ended("--cluster-issuer", mistyped) == Exit.USAGE
        told = " ".join(capsys.readouterr().err.split())
        assert membersless(mistyped) in told
        assert f"service accounts of {OTHER}" in told.partition("the cluster's issuer is not known")[2]
        assert "exactly as in" in told
    ours = str(binding(tmp_path, OURS))
    assert ended("-m", ours, "--cluster-issuer", OURS) == Exit.OK
    assert f"groups of service accounts of {OTHER} have no members" in " ".join(
        capsys.readouterr().err.split()
    )
    assert ended("-m", ours, "--cluster-issuer", OTHER) == Exit.FAILED


def test_the_api_server_is_not_asked_for_an_issuer_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}")
    monkeypatch.setattr(cluster, "read_issuer", lambda **_: OURS)

    assert cluster_source(AccessQuestion(), str(kubeconfig), None).cluster_issuer == OURS
    assert (
        cluster_source(AccessQuestion(), str(kubeconfig), None, cluster_issuer=OTHER).cluster_issuer == OTHER
    )


def test_options_that_would_do_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["access", "what-can", "heist/hacker", *arguments])
        assert ended.value.code == Exit.USAGE
        return capsys.readouterr().err

    assert "--as needs --registry" in refused("--manifests", str(HEIST), "--as", "hacker")
    assert "--as needs --registry" in refused("--as", "hacker", "--kubeconfig", "/no/such/file")
    assert "--cluster-issuer cannot be combined with" in refused(
        "--registry", "http://127.0.0.1:1", "--cluster-issuer", OURS
    )
