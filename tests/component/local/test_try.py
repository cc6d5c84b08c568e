"""`toolcrib try`: one call of a tool that is not applied yet, by its author, without a running local mode."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from manifests import manifest
from mcp_upstream import McpUpstream, handshake, stateless
from mcp_upstream import running as serving
from realparts import processes
from stub_server import Answer, Asked, answering
from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import Exit
from toolcrib_cli.example_tools import CallAssertions, keys_at

TOOL = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {{name: {name}, namespace: team-a}}
spec:
  description: The weather of a city today.
  scopes: ["weather:read"]
  inputSchema:
    type: object
    properties: {{city: {{type: string, maxLength: 20}}, days: {{type: integer}}}}
    required: [city]
    additionalProperties: false
  backend:
    http: {backend}
{more}---
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata:
  name: key
  namespace: team-a
  labels: {{toolcrib.dev/backend-credential: "true"}}
  annotations: {{toolcrib.dev/hosts: "{host}"}}
stringData: {{token: s3cret-of-the-weather}}
"""
SERVICE = "{service: {name: weather, port: 80}, path: /today}"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked() -> list[Asked]:
    return []


@pytest.fixture
def backend(asked: list[Asked]) -> Iterator[int]:
    def answer(request: Asked) -> Answer:
        asked.append(request)
        return Answer(b'{"sky": "clear"}')

    with answering(answer) as port:
        yield port


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(options, "DEFAULT_PORT", processes.free_port())
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))

    def run(text: str, *arguments: str) -> tuple[int, str, str]:
        (file := tmp_path / "tool.yaml").write_text(text)
        with pytest.raises(SystemExit) as ended:
            cli.main(["try", str(file), *arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def tool(backend: str, more: str = "", name: str = "weather") -> str:
    return TOOL.format(name=name, backend=backend, more=more)


@pytest.mark.guarantee
def test_the_backend_is_called_once_and_no_credential_is_shown(
    run: Run, backend: int, asked: list[Asked]
) -> None:
    text = tool(
        f'{{url: "http://127.0.0.1:{backend}/today"}}',
        "    auth: {type: Header, header: x-api-key, secretKeyRef: {name: key, key: token}}\n",
    ) + SECRET.format(host=f"http://127.0.0.1:{backend}")
    ended, out, err = run(text, "city=12", "days=3", "--no-search", "-o", "json")

    assert ended == Exit.OK, err
    (request,) = asked
    assert request.headers["x-api-key"] == "s3cret-of-the-weather"
    assert request.json() == {"city": "12", "days": 3}, "the schema says what is text"
    shown = json.loads(out)
    assert shown["request"]["url"] == f"http://127.0.0.1:{backend}/today"
    assert shown["request"]["headers"]["x-api-key"] == "***"
    assert (shown["response"]["status"], shown["response"]["result"]) == (200, {"sky": "clear"})
    assert "s3cret" not in out + err
    assert "s3cret" not in "".join(run(text, "city=12", "--no-search")[1:])


def test_a_secret_that_is_not_beside_the_tool_is_named(run: Run, backend: int, asked: list[Asked]) -> None:
    auth = "    auth: {type: Bearer, secretKeyRef: {name: key, key: token}}\n"
    ended, _, err = run(tool(f'{{url: "http://127.0.0.1:{backend}/"}}', auth), "city=12", "--no-search")

    assert (ended, asked) == (Exit.FAILED, [])
    assert "CredentialMissing: Secret team-a/key does not exist" in err
    assert "tool.yaml and from --manifests" in err


def test_a_service_that_verifies_assertions_takes_the_call_though_no_registry_runs(
    run: Run, asked: list[Asked]
) -> None:
    issuer = f"http://127.0.0.1:{options.DEFAULT_PORT}"
    calls = CallAssertions(issuer, keys_at(f"{issuer}/.well-known/jwks.json"), ["team-a/weather"])

    def answer(request: Asked) -> Answer:
        try:
            caller = calls.verify(
                request.headers["toolcrib-assertion"], request.method, request.path, request.body
            )
        except jwt.PyJWTError as error:
            return Answer(json.dumps({"detail": str(error)}).encode(), 401)
        return Answer(json.dumps({"for": caller["sub"]}).encode())

    with answering(answer) as port:
        mapped = ("--backend", f"team-a/weather=127.0.0.1:{port}")
        ended, out, err = run(tool(SERVICE), "city=Oslo", "--no-search", "--as", "team-b/bot", *mapped)
    assert ended == Exit.OK, err
    assert '"for": "system:serviceaccount:team-b:bot"' in out
    assert "toolcrib-assertion: ***" in out


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("backend", "code", "hint"),
    [
        ('{url: "http://far.example/"}', "egress_refused", "--allow-host far.example"),
        ('{url: "http://169.254.169.254/"}', "egress_refused", "--allow-host 169.254.169.254"),
        (SERVICE, "service_pending", "--backend team-a/weather=host:port"),
    ],
)
def test_the_guard_decides_as_for_a_real_call(run: Run, backend: str, code: str, hint: str) -> None:
    ended, out, err = run(tool(backend), "city=Oslo", "--no-search")
    assert (ended, out) == (Exit.FAILED, ""), "nothing was sent"
    assert f"error: {code}: " in err
    assert hint in err


def test_the_hosts_file_of_the_data_folder_counts(run: Run, backend: int, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    file = tmp_path / "data" / "hosts.yaml"
    file.write_text(f"backends: {{team-a/weather: '127.0.0.1:{backend}'}}\n")
    file.chmod(0o600)
    assert run(tool(SERVICE, "    assertion: false\n"), "city=Oslo", "--no-search")[0] == Exit.OK
    file.chmod(0o666)
    assert "chmod 600" in run(tool(SERVICE), "city=Oslo", "--no-search")[2]


@pytest.mark.parametrize(
    ("arguments", "ended", "said"),
    [
        (["days=3"], Exit.FAILED, '\n  "city" is a required property'),
        (["city=Oslo", "days=much"], Exit.FAILED, "/days: "),
        (["city"], Exit.USAGE, "is not key=value"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(
    run: Run, backend: int, asked: list[Asked], arguments: list[str], ended: Exit, said: str
) -> None:
    found = run(tool(f'{{url: "http://127.0.0.1:{backend}/"}}'), *arguments, "--no-search")
    assert (found[0], said in found[2]) == (ended, True), found[2]
    assert asked == []


def test_a_tool_that_the_operator_would_refuse_is_not_called(run: Run, tmp_path: Path) -> None:
    (beside := tmp_path / "beside").mkdir()
    (beside / "old.yaml").write_text(tool(SERVICE, name="other").replace("spec:", "spec:\n  name: weather"))
    ended, out, err = run(tool(SERVICE), "city=Oslo", "--manifests", str(beside))
    assert (ended, out) == (Exit.FAILED, "")
    assert "Tool team-a/weather would not be accepted: NameConflict: Tool team-a/other is older" in err
    assert ":3: " in run("apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: A}\nspec: {}\n")[2]
    several = tool(SERVICE) + tool(SERVICE, name="climate")
    assert "specify one with --tool: team-a/weather, team-a/climate" in run(several)[2]


@pytest.mark.parametrize("era", [stateless, handshake])
def test_a_tool_of_an_mcp_server_is_called_once(run: Run, era: Callable[[], McpUpstream]) -> None:
    with serving(era()) as up:
        server = manifest("ToolServer", "files", "team-a", mcp={"url": up.url}, defaults={"scopes": ["a:b"]})
        backend = {"mcp": {"serverRef": {"name": "files"}, "tool": "read"}}
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        made = manifest(
            "Tool", "read", "team-a", server="files", description="Reads a file of the folder.", scopes=["a:b"],
            inputSchema=schema, backend=backend,
        )  # fmt: skip
        code, out, err = run(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [server, made]}), "path=a"
        )

    assert (code, err) == (0, "")
    assert f"POST {up.url}" in out
    assert '"method": "tools/call"' in out
    assert '"path": "a"' in out.rpartition("response: 200")[2]
    assert len(up.of("tools/call")) == 1


def test_a_file_with_a_toolserver_alone_is_told_where_its_tools_are_called(run: Run) -> None:
    server = {"mcp": {"command": ["uvx", "mcp-server-time"]}, "defaults": {"scopes": ["time:use"]}}
    code, _, err = run(json.dumps(manifest("ToolServer", "time", "team-a", **server)))
    assert code == Exit.USAGE
    assert "`toolcrib up` imports the tools of a ToolServer" in err


def test_a_search_for_its_description_ranks_it_among_the_manifests_beside_it(
    run: Run, backend: int, tmp_path: Path
) -> None:
    (beside := tmp_path / "beside").mkdir()
    text = tool(f'{{url: "http://127.0.0.1:{backend}/"}}', name="other").replace("weather of a", "way to the")
    (beside / "other.yaml").write_text(text)
    called = tool(f'{{url: "http://127.0.0.1:{backend}/"}}')
    ended, out, err = run(called, "city=Oslo", "--manifests", str(beside), "-o", "json")
    assert ended == Exit.OK, err
    search: dict[str, Any] = json.loads(out)["search"]
    assert (search["place"], search["among"], search["mode"]) == (1, 2, "hybrid")
    assert [hit["tool_id"] for hit in search["best"]] == ["team-a/weather", "team-a/other"]
