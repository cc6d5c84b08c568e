"""`toolcrib get`: the running local mode's objects with their conditions, and nothing of any Secret."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from local_mode import LocalMode
from manifests import binding, cluster_binding, tool
from realparts.processes import wait_until
from toolcrib.resources import crd

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "vault", "namespace": "heist"},
    "stringData": {"token": "s3cr3t-value"},
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    place = tmp_path_factory.mktemp("get")
    (folder := place / "manifests").mkdir()
    untrusted = {"matchLabels": {"team": "a"}}
    objects = (
        tool("calculator", backend={"none": {}}), tool("ledger", "bank", backend={"none": {}}),
        binding("hacker", ["calculator:use"]), SECRET,
        cluster_binding("labelled", ["calculator:use"], namespaceSelector=untrusted),
    )  # fmt: skip
    (folder / "objects.yaml").write_text("\n---\n".join(json.dumps(each) for each in objects))
    with LocalMode(place, folder) as running:
        yield running


def got(local: LocalMode, *arguments: str) -> str:
    done = local.toolcrib("get", *arguments)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_tables_have_the_printer_columns_of_the_definitions(local: LocalMode) -> None:
    for flags, wide in (((), False), (("-o", "wide"), True)):
        head, *rows = got(local, "tools", *flags).splitlines()
        wanted = [c["name"].upper() for c in crd.COLUMNS["Tool"] if wide or not c.get("priority")]
        assert head.split("\t") == ["NAMESPACE", "NAME", *wanted]
        assert [row.split("\t")[:2] for row in rows] == [["bank", "ledger"], ["heist", "calculator"]]
        assert rows[1].split("\t")[5] == '["calculator:use"]'
    assert "heist" not in got(local, "tl", "-n", "bank")
    assert got(local, "toolcrib").count("READY") == 3


def test_one_object_is_shown_with_its_conditions_in_each_form(local: LocalMode) -> None:
    plain = json.loads(got(local, "casb", "labelled", "-o", "json"))
    assert plain == yaml.safe_load(got(local, "clusteragentscopebinding", "labelled", "-o", "yaml"))
    accepted = next(c for c in plain["status"]["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "UntrustedLabel")
    described = got(local, "casb", "labelled", "-o", "describe")
    assert f"Accepted\tFalse\tUntrustedLabel\t{accepted['message']}" in described
    assert "Manifest:   " in described
    assert json.loads(got(local, "tool", "heist/calculator", "-o", "json"))["spec"]["state"] == "Active"


def test_a_selector_may_read_the_labels_that_up_is_told_to_trust(tmp_path: Path) -> None:
    (folder := tmp_path / "manifests").mkdir()
    selected = cluster_binding(
        "labelled", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}}
    )
    objects = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "heist", "labels": {"team": "a"}}},
        tool("calculator", backend={"none": {}}), tool("ledger", "bank", backend={"none": {}}), selected,
    )  # fmt: skip
    (folder / "objects.yaml").write_text("\n---\n".join(json.dumps(each) for each in objects))
    with LocalMode(tmp_path, folder, extra=("--trusted-namespace-label", "team")) as running:
        status = json.loads(got(running, "casb", "labelled", "-o", "json"))["status"]

    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], status["matchedTools"]) == ("True", 1)


def test_a_secret_is_counted_and_never_shown(local: LocalMode) -> None:
    done = local.toolcrib("get", "toolcrib", "-o", "describe")
    assert "s3cr3t" not in done.stdout + done.stderr
    assert "1 Secret" in local.toolcrib("get", "toolcrib").stderr
    refused = local.toolcrib("get", "secrets", "-o", "json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert json.loads(refused.stderr)["error"] == "unknown kind 'secrets'"


def test_the_route_answers_to_the_key_of_the_data_folder_alone(local: LocalMode) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer guess"},
        {"Authorization": f"Bearer {local.token('hacker')}"},
    ):
        answer = httpx.get(local.url + "/local/objects", headers=headers, trust_env=False)
        assert (answer.status_code, "objects" in answer.text) == (401, False)
    assert stat.S_IMODE((local.data / "local.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("toolz",), 2, "did you mean tool?"),
        (("tools", "nope"), 1, "not found: tools nope"),
        (("tools", "-n", "bank", "-A"), 2, "either -n or -A"),
    ],
)
def test_what_is_not_there_is_named(
    local: LocalMode, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = local.toolcrib("get", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_without_a_running_local_mode_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    done = LocalMode(tmp_path).toolcrib("get", "tools")
    assert done.returncode == 3
    assert "toolcrib up --manifests FOLDER" in done.stderr
    assert "kubectl get" in done.stderr


def test_pages_of_other_origins_and_other_hosts_get_nothing_even_with_the_key(local: LocalMode) -> None:
    key = json.loads((local.data / "local.json").read_text())["key"]
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, trust_env=False) as client:
        assert client.get(f"{local.url}/local/objects").status_code == 200
        for headers, status in (
            ({"Host": "rebound.example"}, 421),
            ({"Origin": "https://page.example"}, 403),
        ):
            assert client.get(f"{local.url}/local/objects", headers=headers).status_code == status


def test_an_object_that_is_made_again_under_a_name_begins_without_events(local: LocalMode) -> None:
    file = local.data.parent / "manifests" / "again.yaml"

    def events() -> str:
        shown = str(local.toolcrib("get", "casb", "again", "-o", "describe").stdout)
        return shown.partition("Events:")[2]

    for _ in range(2):
        file.write_text(json.dumps(cluster_binding("again", ["calculator:use"], namespaceSelector={})))
        wait_until(lambda: "Normal\tReady" in events())
        assert events().count("Normal\tReady") == 1
        file.unlink()
        wait_until(lambda: not events())
