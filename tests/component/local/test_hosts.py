"""Where the tools of a running local mode may call, and the commands that find it by its data folder."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_mode import LocalMode
from realparts import loaded
from stub_server import Answer, answering

TOOL = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {{name: {name}, namespace: team-a}}
spec:
  description: Look something up in the notes of the team.
  scopes: ["notes:use"]
  backend:
    http: {backend}
---
"""
BINDING = """\
apiVersion: toolcrib.dev/v1alpha1
kind: AgentScopeBinding
metadata: {name: writer, namespace: team-a}
spec:
  subjects: [{kind: ServiceAccount, namespace: team-a, name: writer}]
  scopes: ["notes:use"]
"""


@pytest.fixture(scope="module")
def backend() -> Iterator[int]:
    with answering(lambda _: Answer(b'{"found": 7}', 200, {"content-type": "application/json"})) as port:
        yield port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Manifests that bring a hosts file with them, as a cloned folder might."""
    found = tmp_path_factory.mktemp("cloned")
    tools = TOOL.format(name="notes", backend="{service: {name: notes, port: 80}, path: /}")
    tools += TOOL.format(name="open", backend='{url: "http://open.example:8443/"}')
    tools += TOOL.format(name="far", backend='{url: "http://far.example:8443/"}')
    (found / "notes.yaml").write_text(tools + BINDING)
    (found / "hosts.yaml").write_text("allow: [far.example]\nbackends: {team-a/notes: '127.0.0.1:1'}\n")
    (found / "hosts.yaml").chmod(0o600)
    return found


@pytest.fixture(scope="module")
def local(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    with LocalMode(
        tmp_path_factory.mktemp("up"), folder, extra=("--allow-host", "open.example:8443")
    ) as running:
        yield running


def code(local: LocalMode, tool: str) -> tuple[int, str]:
    """The exit code of a call, and all that it printed."""
    done = local.toolcrib("call", tool, "--as", "writer")
    return done.returncode, done.stdout + done.stderr


def allow(local: LocalMode, text: str, said: str) -> None:
    """Write the hosts file, and wait until the local mode has said so."""
    draft = local.data / "draft"
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(local.data / "hosts.yaml")
    local.child.wait_ready(lambda: said in local.output, timeout=60)


@pytest.mark.guarantee
def test_a_folder_of_manifests_opens_nothing_and_the_errors_say_what_does(local: LocalMode) -> None:
    ended, said = code(local, "far")
    assert ended == 1
    assert "egress_refused: far.example (port 8443) is not in egress.allow" in said
    assert "--allow-host far.example:8443" in said
    assert "hosts.yaml of the data folder" in said
    assert "egress_refused" not in code(local, "open")[1], "the option opens it"
    ended, said = code(local, "notes")
    assert ended == 3
    assert "service_pending" in said
    assert "--backend team-a/notes=host:port" in said
    assert "`team-a/notes: host:port` to `backends` in hosts.yaml" in said


def test_the_hosts_file_is_watched_and_a_broken_one_changes_nothing(local: LocalMode, backend: int) -> None:
    open_ = f"allow: ['far.example:8443']\nbackends:\n  team-a/notes: 127.0.0.1:{backend}\n  team-a/nots: 127.0.0.1:1\n"
    allow(local, open_, "hosts.yaml: may call far.example:8443; backends team-a/notes=")
    assert "hosts.yaml: team-a/nots: no Service and no Tool's backend has this name" in local.output
    assert "egress_refused" not in code(local, "far")[1], "refused for its name's sake alone"
    assert json.loads(code(local, "notes")[1]) == {"found": 7}

    allow(local, "allow: []\nbackends:\n  notes: 127.0.0.1:1\n", "the hosts file changed nothing")
    assert f"{local.data / 'hosts.yaml'}:3: backends.notes: " in local.output
    assert code(local, "notes")[0] == 0

    allow(local, "allow: []\n", "hosts.yaml: nothing is opened")
    assert "egress_refused" in code(local, "far")[1]
    assert "service_pending" in code(local, "notes")[1]


def test_a_trial_calls_where_the_running_local_mode_calls(
    local: LocalMode, backend: int, tmp_path: Path
) -> None:
    allow(local, f"backends: {{team-a/notes: '127.0.0.1:{backend}'}}\n", "hosts.yaml: backends team-a/notes=")
    changed = TOOL.format(name="notes", backend="{service: {name: notes, port: 80}, path: /other}")
    (file := tmp_path / "changed.yaml").write_text(changed)
    done = local.toolcrib("try", str(file), "-o", "json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["request"]["url"] == f"http://127.0.0.1:{backend}/other"
    assert (shown["search"]["mode"], shown["search"]["among"]) == ("lexical", 3)
    port = local.url.rpartition(":")[2]
    itself = TOOL.format(name="itself", backend=f'{{url: "http://127.0.0.1:{port}/"}}')
    file.write_text(itself)
    assert "egress_refused" in local.toolcrib("try", str(file), "--no-search").stderr


def test_access_and_health_find_the_running_local_mode_by_its_data_folder(
    local: LocalMode, folder: Path, tmp_path: Path
) -> None:
    (folder / "hosts.yaml").unlink()  # it is a broken manifest

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TOOLCRIB_")}
        env |= {"TOOLCRIB_DATA": str(local.data), "KUBECONFIG": str(tmp_path / "none")}
        argv = [sys.executable, "-m", "toolcrib_cli", *arguments]
        return loaded.run(argv, env=env, timeout=60)

    who = run("access", "who-can", "notes", "-o", "json")
    assert json.loads(who.stdout)["tool_id"] == "team-a/notes", who.stderr
    assert f"asking the local mode at {local.url}" in who.stderr
    # accounts are what the manifests declare
    account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: wroter, namespace: team-a}\n"
    (folder / "account.yaml").write_text(account)
    state = local.data / "local.json"
    local.child.wait_ready(lambda: "team-a/wroter" in state.read_text(), timeout=60)
    (held,) = json.loads(run("access", "who-holds", "notes:use", "-o", "json").stdout)["holders"]
    gone = "SubjectNotFound: there is no ServiceAccount team-a/writer; did you mean team-a/wroter?"
    assert (held["holds"], held["detail"]) == (False, gone)
    able = json.loads(run("access", "who-can", "notes", "-o", "json").stdout)["subjects"]
    assert [(s["allowed"], s["reason"], s["rule"]) for s in able] == [(False, "account_gone", gone)]
    for asked in (("what-can", "writer"), ("explain", "writer", "notes")):
        told = run("access", asked[0], "team-a/" + asked[1], *asked[2:], "-o", "json")
        assert gone.removeprefix("SubjectNotFound: ") in json.loads(told.stdout)["notes"], told.stderr
    (added := tmp_path / "added.yaml").write_text(
        TOOL.format(name="new", backend="{url: 'http://127.0.0.1/'}")
    )
    diff = run("access", "diff", "-f", str(added))
    assert "team-a/new" in diff.stdout, diff.stderr
    cluster = run("access", "who-can", "notes", "--context", "x")
    assert "which cluster?" in cluster.stderr
    health = run("health", "--ready")
    assert (health.returncode, f"{local.url}/readyz answered 200" in health.stdout) == (0, True), (
        health.stderr
    )


def test_a_host_that_is_none_is_refused_at_the_command_line(tmp_path: Path) -> None:
    local = LocalMode(tmp_path)
    refused = local.toolcrib("up", "--port", "0", "--allow-host", "https://api.example.com")
    assert refused.returncode == 2
    assert "--allow-host" in refused.stderr
