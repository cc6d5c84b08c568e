"""The local mode as a newcomer uses it: one command, folders of manifests, a private store, Ctrl-C."""

import json
import os
import shutil
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from local_mode import HEIST, LocalMode
from toolcrib_cli.errors import CliError
from toolcrib_cli.local import up
from toolcrib_cli.local.settings import Options

HACKER = ["file_reader", "simulation_data"]
GRANT = HEIST.parent / "access" / "changes" / "50-safecracker-database.yaml"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy of the heist that a test may edit."""
    return Path(shutil.copytree(HEIST, tmp_path / "heist"))


@pytest.fixture
def local(tmp_path: Path, manifests: Path) -> Iterator[LocalMode]:
    with LocalMode(tmp_path, manifests) as running:
        yield running


def rewrite(file: Path, text: str) -> None:
    """In one step: a look in between would find an empty file, which says nothing and is no broken one."""
    draft = file.parent.parent / "draft"
    draft.write_text(text)
    draft.replace(file)


def post(local: LocalMode, path: str, token: str, body: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(local.url + path, json=body, headers=headers, trust_env=False, timeout=30)


def test_agents_discover_exactly_their_tools_and_call_them_through_the_registry(local: LocalMode) -> None:
    planner, hacker, safecracker = (local.token(n) for n in ("planner", "heist/hacker", "safecracker"))
    assert local.names(planner) == []
    assert local.names(hacker) == HACKER
    assert local.names(safecracker) == ["calculator"]
    assert post(local, "/tools/calculator", safecracker, {"expression": "2 * (3 + 4)"}).json()["result"] == 14
    assert (
        "guard" in post(local, "/tools/file_reader", hacker, {"filename": "guard_schedule.txt"}).text.lower()
    )
    assert post(local, "/tools/simulation_data", hacker, {}).json()["scenario"] == "vault_drill"
    assert post(local, "/tools/database_query", safecracker, {"query": "select 1"}).status_code == 403
    assert post(local, "/tools/calculator", planner, {"expression": "1"}).status_code == 403
    counted = httpx.get(local.url + "/metrics", trust_env=False).text
    assert (
        'toolcrib_calls_total{agent="heist/safecracker",outcome="ok",server="",tool="heist/calculator"} 1.0'
        in counted
    )


def test_a_grant_that_is_copied_in_gives_a_tool_and_takes_it_away_with_its_file(
    local: LocalMode, manifests: Path
) -> None:
    safecracker = local.token("safecracker")
    copied = Path(shutil.copy(GRANT, manifests))
    local.until_names(safecracker, ["calculator", "database_query"])
    answer = post(local, "/tools/database_query", safecracker, {"query": "SELECT count(*) FROM cameras"})
    assert answer.json()["rows"] == [[6]]
    copied.unlink()
    local.until_names(safecracker, ["calculator"])
    assert post(local, "/tools/database_query", safecracker, {"query": "select 1"}).status_code == 403


def test_an_edited_binding_reaches_discovery_and_calls_within_a_second_and_without_a_restart(
    local: LocalMode, manifests: Path
) -> None:
    hacker = local.token("hacker")
    file = manifests / "41-binding-hacker.yaml"
    before = file.read_text()
    without = before.replace('"simulation:read", ', "")
    took = []
    fewer = ["file_reader"]
    for text, names in ((without, fewer), (before, HACKER), (without, fewer)):
        edited = time.monotonic()
        file.write_text(text)
        local.until_names(hacker, names)
        took.append(time.monotonic() - edited)
    # the machine may stand still once
    assert statistics.median(took) < 1, took
    assert max(took) < 10, took
    assert post(local, "/tools/simulation_data", hacker, {}).status_code == 403


def test_a_broken_edit_is_reported_with_file_and_line_and_changes_nothing(
    local: LocalMode, manifests: Path
) -> None:
    hacker = local.token("hacker")
    file = manifests / "41-binding-hacker.yaml"
    rewrite(file, file.read_text().replace('"simulation:read", ', '"simulation:read", "simulation:read", '))
    local.child.wait_ready(
        lambda: "duplicate value" in local.output and "changed nothing" in local.output, timeout=60
    )
    line = next(text for text in local.output.splitlines() if "duplicate value" in text)
    assert f"{file}:" in line
    assert local.names(hacker) == HACKER


def test_an_unsafe_schema_is_a_broken_edit_too(local: LocalMode, manifests: Path) -> None:
    safecracker = local.token("safecracker")
    file = manifests / "30-tool-calculator.yaml"
    rewrite(file, file.read_text().replace("maxLength: 500", "$ref: 'http://x/'"))
    local.child.wait_ready(lambda: "SchemaUnsafe" in local.output, timeout=60)
    assert f"{file}:" in local.output
    assert local.names(safecracker) == ["calculator"]


@pytest.mark.slow
def test_hidden_text_is_a_broken_edit_unless_only_a_warning_is_asked_for(
    local: LocalMode, manifests: Path, tmp_path: Path
) -> None:
    safecracker = local.token("safecracker")
    file = manifests / "30-tool-calculator.yaml"
    rewrite(file, file.read_text().replace("title: Calculator", 'title: "a\\u202eb"'))
    local.child.wait_ready(lambda: "HiddenText" in local.output, timeout=60)
    assert f"{file}:" in local.output
    assert "U+202E" in local.output
    assert local.names(safecracker) == ["calculator"]
    (folder := tmp_path / "warned").mkdir()
    with LocalMode(folder, manifests, extra=("--hidden-text", "warn")) as lenient:
        assert lenient.names(lenient.token("safecracker")) == ["calculator"]
    (folder := tmp_path / "refused").mkdir()
    with LocalMode(folder, manifests) as strict:
        assert strict.names(strict.token("safecracker")) == []


def test_another_server_for_a_tool_that_is_there_is_refused_as_an_api_server_refuses_it(
    local: LocalMode, manifests: Path
) -> None:
    file = manifests / "30-tool-calculator.yaml"
    rewrite(file, file.read_text().replace("  title: Calculator", "  title: Calculator\n  server: elsewhere"))
    local.child.wait_ready(lambda: "spec.server: is immutable" in local.output, timeout=60)
    assert local.names(local.token("safecracker")) == ["calculator"]


def test_a_backend_of_a_service_that_nobody_names_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    extra = ("--backend", "heist/exampletools=127.0.0.1:1", "--backend", "heist/example-tools=127.0.0.1:1")
    with LocalMode(tmp_path, HEIST, extra=extra) as running:
        assert "warning: --backend heist/exampletools: no Service" in running.output
        assert "heist/example-tools" in running.output.split("there: ")[1]
        assert "--backend heist/example-tools:" not in running.output


def test_a_removed_file_revokes_what_it_granted(local: LocalMode, manifests: Path) -> None:
    hacker = local.token("hacker")
    (manifests / "41-binding-hacker.yaml").unlink()
    local.until_names(hacker, [])


def test_a_folder_that_is_removed_and_recreated_is_followed_again(local: LocalMode, manifests: Path) -> None:
    hacker = local.token("hacker")
    shutil.rmtree(manifests)
    local.until_names(hacker, [])
    shutil.copytree(HEIST, manifests)
    local.until_names(hacker, HACKER)
    (manifests / "41-binding-hacker.yaml").unlink()
    local.until_names(hacker, [])


def test_an_edit_of_what_a_link_leads_to_takes_effect(
    local: LocalMode, manifests: Path, tmp_path: Path
) -> None:
    hacker = local.token("hacker")
    file = manifests / "41-binding-hacker.yaml"
    target = tmp_path / "elsewhere" / "hacker.yaml"
    target.parent.mkdir()
    file.rename(target)
    file.symlink_to(target)
    local.until_names(hacker, HACKER)
    target.write_text(target.read_text().replace('"simulation:read", ', ""))
    local.until_names(hacker, ["file_reader"])


def test_a_registration_survives_kill_9_and_restart(local: LocalMode) -> None:
    writer = local.token("tester", "--scopes", "registry:write rates:use")
    body = {"name": "exchange_rate", "endpoint": "/rate", "scopes": ["rates:use"], "description": "Rates"}
    answer = post(local, "/tools/register", writer, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["message"] == "Tool 'exchange_rate' registered successfully"
    assert local.names(writer) == ["exchange_rate"]
    local.child.kill()
    local.start()
    assert local.names(writer) == ["exchange_rate"]
    again = post(local, "/tools/register", writer, body)
    assert (again.status_code, again.json()["detail"]) == (400, "Tool 'exchange_rate' already registered")
    assert post(local, "/tools/exchange_rate", writer, {}).json()["code"] == "no_backend"


def test_tokens_stay_valid_over_a_restart_and_the_epoch_grows(local: LocalMode) -> None:
    hacker = local.token("hacker")
    before = int((local.data / "epoch").read_text())
    assert local.interrupt() == 0
    local.start()
    assert local.names(hacker) == HACKER
    assert int((local.data / "epoch").read_text()) == before + 1


def test_the_store_is_private_and_an_open_one_is_refused(local: LocalMode) -> None:
    assert stat.S_IMODE(local.data.stat().st_mode) == 0o700
    files = [p for p in local.data.rglob("*") if p.is_file() and "example-tools" not in p.parts]
    assert files
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}
    assert local.interrupt() == 0
    local.data.chmod(0o755)
    refused = local.toolcrib("up", "--port", "0")
    assert refused.returncode == 2
    assert "chmod 700" in refused.stderr


def test_a_second_local_mode_on_the_same_store_is_refused(local: LocalMode) -> None:
    refused = local.toolcrib("up", "--port", "0")
    assert refused.returncode == 2
    assert "another local mode" in refused.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_once_with_a_remedy(local: LocalMode, tmp_path: Path) -> None:
    port = local.url.rpartition(":")[2]
    flags = [
        "--port",
        port,
        "--data",
        str(tmp_path / "other"),
        "--manifests",
        str(HEIST),
        "--embedder",
        "none",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib_cli", "up", *flags], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.count("cannot listen on") == 1
    assert "choose another --port" in ended.stderr


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("minilm", "--embedder: packaged, none or a folder with a model, not 'minilm'"),
        (".", "model.onnx cannot be read: No such file"),
    ],
)
def test_an_embedder_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options = Options(port=0, data=tmp_path / "data", manifests=(), backends={}, tour=False, embedder=chosen)
    with pytest.raises(CliError) as refused:
        up.run(options)
    assert said in str(refused.value)


def test_the_example_tools_take_calls_from_the_registry_alone(local: LocalMode) -> None:
    (tools,) = (t.split("\t")[-1] for t in local.output.splitlines() if t.startswith("example tools"))
    body = {"expression": "6 * 7"}
    direct = httpx.post(tools + "/tools/calculator", json=body, trust_env=False)
    through = post(local, "/tools/calculator", local.token("safecracker"), body)
    key = local.data / "assertion" / "signing.pem"

    assert (direct.status_code, direct.json()["code"]) == (401, "assertion_required")
    assert (through.status_code, through.json()["result"]) == (200, 42)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_ctrl_c_ends_everything_it_started(local: LocalMode) -> None:
    state = json.loads((local.data / "local.json").read_text())
    example_tools = next(t for t in local.output.splitlines() if t.startswith("example tools")).split("\t")[
        -1
    ]
    assert httpx.get(example_tools + "/healthz", trust_env=False).status_code == 200
    assert local.interrupt() == 0
    for url in (local.url, example_tools):
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)
    with pytest.raises(ProcessLookupError):
        os.kill(state["pid"], 0)


@pytest.mark.parametrize("moment", ["local mode; data in", "manifests:", "PART\tSTATE"])
def test_ctrl_c_ends_it_at_any_moment_of_the_start(tmp_path: Path, moment: str) -> None:
    local = LocalMode(tmp_path, HEIST, extra=("--tour",))
    local.child.start()
    try:
        local.child.wait_ready(lambda: moment in local.output, timeout=60)
        assert local.interrupt() == 0
        assert "everything that was started has ended" in local.output
    finally:
        local.child.kill()


def test_a_foreign_host_and_origin_are_refused(local: LocalMode) -> None:
    assert httpx.get(local.url, headers={"Host": "evil.example"}, trust_env=False).status_code == 421
    assert (
        httpx.get(local.url, headers={"Origin": "https://evil.example"}, trust_env=False).status_code == 403
    )


def test_scopes_of_a_token_decide_alone_and_an_empty_text_sees_nothing(local: LocalMode) -> None:
    assert local.names(local.token("anybody", "--scopes", "calculator:use")) == ["calculator"]
    assert local.names(local.token("planner", "--scopes", "database:read")) == ["database_query"]
    assert local.names(local.token("hacker", "--scopes", "")) == []


def test_an_agent_gets_its_own_token_with_its_client_secret(local: LocalMode) -> None:
    secret = local.toolcrib("token", "hacker", "--client-secret").stdout.strip()
    form = {"grant_type": "client_credentials", "client_id": "heist/hacker", "client_secret": secret}
    answer = httpx.post(local.url + "/oauth/token", data=form, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert local.names(answer.json()["access_token"]) == HACKER
    wrong = httpx.post(local.url + "/oauth/token", data=form | {"client_secret": "guess"}, trust_env=False)
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")


def test_totals_count_the_whole_catalog_and_the_registry_is_no_backend_of_its_own(local: LocalMode) -> None:
    hacker, writer = local.token("hacker"), local.token("tester", "--scopes", "registry:write")
    body = httpx.get(local.url + "/", headers={"Authorization": f"Bearer {hacker}"}, trust_env=False).json()
    assert (body["total_available"], body["total_registered"]) == (2, 4)
    port = int(local.url.rsplit(":", 1)[1])
    itself = {
        "name": "loop",
        "endpoint": "/",
        "scopes": ["a"],
        "description": "",
        "host": "127.0.0.1",
        "port": port,
    }
    assert post(local, "/tools/register", writer, itself).json()["code"] == "egress_refused"


def test_the_tour_shows_who_discovers_what_and_a_call_that_was_counted(tmp_path: Path) -> None:
    with LocalMode(tmp_path, HEIST, extra=("--tour",)) as local:
        local.child.wait_ready(lambda: "Ctrl-C stops everything" in local.output, timeout=60)
        shown = local.output
    assert "heist/hacker\t2\tfile_reader, simulation_data" in shown
    assert "heist/planner\t0\t" in shown
    assert "heist/safecracker\t1\tcalculator" in shown
    assert ': 200 {"expression":"2 * (3 + 4)","result":14}' in shown
    assert "heist/hacker tries the same: 403 not_permitted" in shown
    assert '/metrics: toolcrib_calls_total{agent="heist/safecracker"' in shown
    assert "toolcrib call calculator expression='6 * 7' --as safecracker" in shown
    assert "librarian" not in shown


def test_the_client_commands_speak_for_an_agent(local: LocalMode) -> None:
    tools = local.toolcrib("tools", "--as", "hacker", "-o", "json")
    assert sorted(t["name"] for t in json.loads(tools.stdout)) == HACKER
    call = local.toolcrib("call", "calculator", "expression=6*7", "--as", "safecracker", "-o", "json")
    assert call.returncode == 0, call.stderr
    assert "42" in call.stdout
    number = local.toolcrib("call", "calculator", "expression=12", "--as", "safecracker", "-o", "json")
    assert (number.returncode, "12" in number.stdout) == (0, True), number.stderr
    wrong = local.toolcrib("call", "calculator", "expression=1/0", "--as", "safecracker")
    assert (wrong.returncode, "the tool says: " in wrong.stderr) == (1, True)
    refused = local.toolcrib("call", "database_query", "query=select 1", "--as", "safecracker")
    assert refused.returncode == 4
    assert "not_permitted" in refused.stderr
    found = local.toolcrib("search", "evaluate an arithmetic expression", "--as", "safecracker", "-o", "json")
    assert json.loads(found.stdout)["tools"][0]["name"] == "calculator"
    reasons = local.toolcrib(
        "search",
        "evaluate an expression",
        "--as",
        "safecracker",
        "--why",
        "--mode",
        "lexical",
        "--top-servers",
        "2",
    )
    assert "parameters: expression" in reasons.stdout, reasons.stderr
    nothing = local.toolcrib(
        "search", "zzqx", "--as", "safecracker", "--mode", "lexical", "--namespace", "heist"
    )
    assert (nothing.returncode, "No tool found. --min-score 0" in nothing.stderr) == (0, True), nothing.stderr
    described = local.toolcrib("describe", "calculator", "--as", "safecracker")
    assert "tool id: heist/calculator" in described.stdout, described.stderr
    assert '"expression"' in described.stdout
    loaded = local.toolcrib("load", *HACKER, "--as", "hacker")
    assert [t["name"] for t in json.loads(loaded.stdout)] == HACKER, loaded.stderr
    hidden = local.toolcrib("load", "file_reader", "database_query", "--as", "hacker")
    assert (hidden.returncode, hidden.stdout) == (4, "")
    assert "database_query: Tool 'database_query' not found" in hidden.stderr
    nobody = local.toolcrib("tools", "--as", "nobody")
    assert nobody.returncode == 2
    assert "known: heist/hacker" in nobody.stderr


def test_further_tools_of_mcp_are_offered_where_they_are_switched_on(tmp_path: Path) -> None:
    switches = ("--mcp-split-calls", "--mcp-compatible-names")
    with LocalMode(tmp_path, HEIST, extra=switches) as local:
        token = local.toolcrib("token", "hacker").stdout.strip()
        listed = post(local, "/mcp", token, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).json()

    names = {tool["name"] for tool in listed["result"]["tools"]}
    assert {"call_read_tool", "call_write_tool", "invoke_mcp_tool", "search_registry"} <= names
    assert "call_tool" not in names


def test_a_client_says_how_to_start_a_registry_where_none_answers(tmp_path: Path) -> None:
    local = LocalMode(tmp_path)
    local.url = "http://127.0.0.1:9"
    done = local.toolcrib("tools", "--token-file", str(_token(tmp_path)))
    assert done.returncode == 3
    assert "toolcrib up" in done.stderr


def _token(folder: Path) -> Path:
    file = folder / "token"
    file.write_text("x.y.z")
    return file
