"""Whoever writes the sessions' store does not choose where a resume sends a key file, nor as whom its agents act."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import model_stub
from local_mode import HEIST, LocalMode
from realparts.processes import wait_until
from stub_server import Answer, Asked, answering
from toolcrib_cli.session_store.database import Database
from toolcrib_cli.session_store.records import Records
from toolcrib_cli.session_store.rows import State
from toolcrib_cli.session_store.tables import SESSIONS
from toolcrib_cli.sessions import definition

KEY = "sk-of-the-team"


class Endpoint:
    """A model's endpoint that notes the keys that it gets; while `held`, it does not answer."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.port = 0
        self.free = threading.Event()
        self.free.set()

    def answer(self, asked: Asked) -> Answer:
        self.keys.append(asked.headers.get("authorization", "").removeprefix("Bearer "))
        if asked.method == "GET":
            return Answer(b'{"object": "list", "data": []}')
        self.free.wait(60)
        choice = {"index": 0, "finish_reason": "stop", "message": model_stub.text("Done.")}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return Answer(json.dumps(body).encode())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    with LocalMode(tmp_path_factory.mktemp("resumes"), HEIST) as running:
        yield running


@pytest.fixture
def model() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    with answering(endpoint.answer) as endpoint.port:
        yield endpoint


def written(folder: Path, port: int, **model: Any) -> Path:
    """A session's file, and the key beside it."""
    (folder / "key").write_text(KEY)
    model = {"url": f"http://127.0.0.1:{port}/v1", "name": "m", "keyFile": "key"} | model
    agents = [{"name": "crew", "account": "heist/hacker", "prompt": "Work."}]
    (file := folder / "session.json").write_text(
        json.dumps({"session": {"name": "test"}, "model": model, "agents": agents})
    )
    return file


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "toolcrib_cli", "session", *arguments]


def environ(local: LocalMode) -> dict[str, str]:
    return {**os.environ, "TOOLCRIB_DATA": str(local.data), "TOOLCRIB_URL": local.url}


def session(local: LocalMode, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environ(local), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=90,
    )  # fmt: skip


def paused(local: LocalMode, model: Endpoint, file: Path, ident: str) -> None:
    """A session that was started here, and paused in its first turn."""
    model.free.clear()
    run = subprocess.Popen(
        command("run", str(file), "--id", ident), env=environ(local), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: len(model.keys) == 2, 60)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 130
    finally:
        run.kill()
        run.wait()
    model.free.set()
    model.keys.clear()


def planted(local: LocalMode, file: Path, ident: str) -> None:
    """A paused session that somebody else has written to the store."""
    with Database.in_folder(local.data) as database:
        records = Records(database)
        text = definition.read(file).as_json()
        records.create(ident, "test", text, holder="h", keeps=False, retention=3600)
        records.leave(ident, "h", State.PAUSED)


def test_a_session_that_was_started_here_is_resumed_without_a_question(
    local: LocalMode, model: Endpoint, tmp_path: Path
) -> None:
    paused(local, model, written(tmp_path, model.port), "own")
    done = session(local, "resume", "own", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(model.keys) == {KEY}
    assert list((local.data / "accepted-sessions").iterdir()) == [], "it has ended"


@pytest.mark.parametrize("change", ["url", "account", "key"])
def test_a_session_that_was_changed_in_the_store_sends_nothing(
    local: LocalMode, model: Endpoint, tmp_path: Path, change: str
) -> None:
    file, thief, ident = written(tmp_path, model.port), Endpoint(), f"changed-{change}"
    (tmp_path / "id_rsa").write_text("another-secret")
    paused(local, model, file, ident)
    with answering(thief.answer) as thief.port, Database.in_folder(local.data) as database:
        with database.transaction() as connection:
            text = connection.execute(
                sa.select(SESSIONS.c.definition).where(SESSIONS.c.id == ident)
            ).scalar_one()
            other = {
                "url": text.replace(f":{model.port}/", f":{thief.port}/"),
                "account": text.replace("heist/hacker", "heist/safecracker"),
                "key": text.replace('"key"', '"id_rsa"'),
            }[change]
            assert other != text
            connection.execute(SESSIONS.update().where(SESSIONS.c.id == ident).values(definition=other))
        for more in ((), ("--compare", str(file)), ("--accept", "sha256:" + "0" * 64)):
            done = session(local, "resume", ident, *more, cwd=tmp_path)
            assert done.returncode == 2
        assert (model.keys, thief.keys) == ([], [])


def test_a_session_of_another_machine_is_resumed_once_it_is_accepted_or_equals_its_file(
    local: LocalMode, model: Endpoint, tmp_path: Path
) -> None:
    file = written(tmp_path, model.port)
    for ident in ("accepted", "compared"):
        planted(local, file, ident)
    refused = session(local, "resume", "accepted", cwd=tmp_path)
    assert refused.returncode == 2
    assert "error: the store's accepted was not started on this machine. It says:" in refused.stderr
    where = f"the model m at http://127.0.0.1:{model.port}/v1 with the key in key"
    assert f"crew acts as heist/hacker and uses {where}" in refused.stderr
    assert KEY not in refused.stderr
    assert model.keys == []

    (digest,) = re.findall(r"--accept (sha256:[0-9a-f]{64})", refused.stderr)
    assert session(local, "resume", "compared", "--accept", digest, cwd=tmp_path).returncode == 2, (
        "a digest is that of one session"
    )
    accepted = session(local, "resume", "accepted", "--accept", digest, cwd=tmp_path)
    assert accepted.returncode == 0, accepted.stderr
    (tmp_path / "elsewhere").mkdir()
    compared = session(local, "resume", "compared", "--compare", str(file), cwd=tmp_path / "elsewhere")
    assert compared.returncode == 0, compared.stderr
    assert set(model.keys) == {KEY}


@pytest.mark.parametrize(("answer", "code", "sent"), [("n", 1, False), ("y", 0, True)])
def test_at_a_terminal_a_session_of_another_machine_is_asked_about_once(
    local: LocalMode, model: Endpoint, tmp_path: Path, answer: str, code: int, sent: bool
) -> None:
    planted(local, written(tmp_path, model.port), f"asked-{answer}")
    ours, theirs = pty.openpty()
    try:
        run = subprocess.Popen(
            command("resume", f"asked-{answer}"), env=environ(local), cwd=tmp_path, stdin=theirs,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        os.write(ours, f"{answer}\n".encode())
        _, said = run.communicate(timeout=90)
    finally:
        os.close(ours)
        os.close(theirs)
    assert run.returncode == code, said
    assert "with the key in key" in said
    assert "Resume it?" in said
    assert bool(model.keys) is sent
