"""`toolcrib init`: what it writes validates, runs, and answers an agent through the local mode."""

import json
import os
import sys
from pathlib import Path

import httpx
import pytest

from local_mode import LocalMode
from realparts.processes import Child, free_port
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit


def toolcrib(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(map(str, arguments)))
    return int(ended.value.code or 0)


def test_what_is_written_validates_and_answers_an_agent_and_nobody_else(tmp_path: Path) -> None:
    folder, port = tmp_path / "My Greetings", free_port()
    assert toolcrib("init", folder) == Exit.OK
    assert toolcrib("validate", "--strict", folder) == Exit.OK
    extra = ("--backend", f"my-greetings/greetings=127.0.0.1:{port}")
    with LocalMode(tmp_path, folder, extra=extra) as local:
        plain = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env = plain | {"TOOLCRIB_ISSUER": local.url, "PORT": str(port)}
        service = Child(
            "service", [sys.executable, str(folder / "service.py")], log=tmp_path / "service.log", env=env
        )
        service.start()
        try:
            direct = f"http://127.0.0.1:{port}/greet"
            service.wait_ready(lambda: _listens(direct), timeout=60)
            done = local.toolcrib("call", "greet", "name=Ada", "time=evening", "--as", "tester")
            assert json.loads(done.stdout) == {
                "greeting": "Good evening, Ada!",
                "for": "system:serviceaccount:my-greetings:tester",
            }, done.stderr
            refused = httpx.post(direct, json={"name": "Ada"}, trust_env=False)
            assert refused.status_code == 401
        finally:
            service.stop()


def _listens(url: str) -> bool:
    try:
        return httpx.post(url, trust_env=False, timeout=10).status_code == 401
    except httpx.TransportError:
        return False


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "service.py").symlink_to(tmp_path / "nowhere")
    assert toolcrib("init", tmp_path, "-n", "team-a") == Exit.USAGE
    assert "has service.py, README.md already; nothing was written" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["README.md", "service.py"]
    assert (tmp_path / "README.md").read_text() == "mine"
    assert toolcrib("init", tmp_path / "new", "-n", "Team A") == Exit.USAGE
    assert "cannot be a namespace" in capsys.readouterr().err
