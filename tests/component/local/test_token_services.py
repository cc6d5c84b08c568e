"""The local mode obtains access tokens at a Service, once it is told where that is."""

import json
from pathlib import Path

from local_mode import LocalMode
from manifests import binding, tool
from stub_server import Answer, Asked, answering

AUTH = {
    "type": "ClientCredentials",
    "secretKeyRef": {"name": "client", "key": "client-secret"},
    "oauth": {"tokenService": {"name": "idp", "port": 8080, "path": "/token"}},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "client",
        "namespace": "heist",
        "labels": {"toolcrib.dev/backend-credential": "true"},
        "annotations": {"toolcrib.dev/hosts": "example-tools idp"},
    },
    "stringData": {"client-id": "us", "client-secret": "s3cret"},
}


def test_a_token_endpoint_at_a_service_is_asked_where_the_local_mode_is_told_that_it_is(
    tmp_path: Path,
) -> None:
    def answer(asked: Asked) -> Answer:
        if asked.path == "/token":
            return Answer(b'{"access_token": "a-token", "token_type": "Bearer"}')
        if asked.headers.get("authorization") != "Bearer a-token":
            return Answer(status=401)
        return Answer(b'{"found": 7}')

    folder = tmp_path / "manifests"
    for each in (folder, tmp_path / "one", tmp_path / "two"):
        each.mkdir()
    backend = {"http": {"service": {"name": "example-tools", "port": 8080}}, "auth": AUTH}
    manifests = (tool("notes", backend=backend), binding("bot", ["notes:use"]), SECRET)
    (folder / "all.yaml").write_text("\n---\n".join(map(json.dumps, manifests)))
    with answering(answer) as port:
        place = f"127.0.0.1:{port}"
        with LocalMode(
            tmp_path / "one", folder, extra=("--backend", f"heist/example-tools={place}")
        ) as local:
            done = local.toolcrib("call", "notes", "--as", "bot")
            assert done.returncode == 3
            assert "--backend heist/idp=host:port" in done.stdout + done.stderr
        options = ("--backend", f"heist/example-tools={place}", "--backend", f"heist/idp={place}")
        with LocalMode(tmp_path / "two", folder, extra=options) as local:
            done = local.toolcrib("call", "notes", "--as", "bot")
            assert json.loads(done.stdout) == {"found": 7}, done.stderr
            assert "heist/idp: no Service" not in local.output
