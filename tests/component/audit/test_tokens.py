"""The decision log says by which token each thing was asked: by its id, never by the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import decision_logs
from decision_logs import KEY, records, verify
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.publish import PublishedAccount
from toolcrib_cli.main import main

TOOLS = [tool("calculator"), tool("vault")]


def asked(found: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None, int]]:
    """Action, tool, token and number of requests of each record."""
    return [
        (r["action"], r.get("tool"), r.get("jti"), r.get("repeated", {}).get("count", 1))
        for r in found
        if not r["action"].startswith("audit.")
    ]


def post(r: RunningRegistry, path: str, body: Any, **claims: Any) -> int:
    return r.http.post(r.url + path, headers=r.auth("team", "bot", **claims), json=body).status_code


def test_every_record_names_the_token_it_was_asked_with_though_tokens_share_a_view(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    audit = {"path": str(log), "key_file": decision_logs.key_file(tmp_path)}
    with running_registry(TOOLS, [binding("bot")], audit=audit) as r:
        for jti in ("first", "second"):
            token = r.auth("team", "bot", jti=jti)
            r.http.get(r.url, headers=token)
            for path, body in (("/v1/search", {"query": "sums"}), ("/v1/describe", {"tool": "calculator"})):
                assert r.http.post(r.url + path, headers=token, json=body).status_code == 200
            r.http.post(r.url + "/tools/calculator", headers=token, json={})
            for name in ("vault", "nothing"):
                assert r.http.post(r.url + "/v1/call", headers=token, json={"tool": name}).status_code == 403
        r.http.get(r.url, headers=r.auth("team", "bot"))

    per_token = [("list", None), ("search", None), ("describe", "team/calculator"), ("call", "team/calculator"),
                 ("call", "team/vault"), ("call", "nothing")]  # fmt: skip
    wanted = [(action, name, jti, 1) for jti in ("first", "second") for action, name in per_token]
    key = lambda one: json.dumps(one)  # noqa: E731
    assert sorted(asked(records(log)), key=key) == sorted([*wanted, ("list", None, None, 1)], key=key)
    assert "eyJ" not in log.read_text()
    assert not verify(log, key=KEY).findings


def test_refusals_of_two_tokens_are_counted_apart(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry(TOOLS, [binding("bot")], audit={"path": str(log)}) as r:
        for jti, times in (("first", 3), ("second", 5)):
            for _ in range(times):
                assert post(r, "/v1/call", {"tool": "vault"}, jti=jti) == 403

    found = asked(records(log))
    assert sorted(found) == [
        ("call", "team/vault", jti, count) for jti, count in (("first", 1), ("first", 2), ("second", 1), ("second", 4))
    ]  # fmt: skip


def test_the_token_of_an_account_that_is_gone_is_named(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry(publish=False, audit={"path": str(log)}) as r:
        r.publish(
            TOOLS, [binding("bot")], accounts=[PublishedAccount(namespace="team", name="bot", uid="new")]
        )
        assert post(r, "/v1/call", {"tool": "calculator"}, uid="old", jti="stolen") == 401
        assert post(r, "/v1/call", {"tool": "calculator"}, uid="new", jti="good") == 503

    found = {r.get("jti"): r["reason"] for r in records(log) if r["action"] == "call"}
    assert found == {"stolen": "account_gone", "good": "granted"}


def test_what_one_token_did_is_found_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry(TOOLS, [binding("bot")], audit={"path": str(log)}) as r:
        for jti in ("good", "stolen", "good"):
            post(r, "/v1/describe", {"tool": "calculator"}, jti=jti)
        post(r, "/v1/call", {"tool": "vault"}, jti="stolen")

    with pytest.raises(SystemExit, match="0"):
        main(["audit", "query", str(log), "--jti", "stolen", "-o", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["agent"], row["action"], row["tool"], row["reasons"]) for row in rows] == [
        ("team/bot", "call", "team/vault", {"scope_not_granted": 1}),
        ("team/bot", "describe", "team/calculator", {}),
    ]


def test_reasons_by_identity_that_metrics_do_not_tell_are_those_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "decisions.jsonl"
    grants = [binding("bot"), binding("bot", (), name="never", deny=("vault",)), binding("cat")]
    with running_registry(TOOLS, grants, audit={"path": str(log)}) as r:
        for who, name in (("bot", "vault"), ("bot", "vault"), ("bot", "nothing"), ("cat", "vault")):
            r.http.post(r.url + "/v1/call", headers=r.auth("team", who), json={"tool": name})
        assert "AgentScopeBinding/team/never" not in r.metrics()

    with pytest.raises(SystemExit, match="0"):
        main(["audit", "query", str(log), "--denied", "-o", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["agent"], row["tool"], row["reasons"]) for row in rows] == [
        ("team/bot", "nothing", {"unknown_tool": 1}),
        ("team/bot", "team/vault", {"denied": 2}),
        ("team/cat", "team/vault", {"scope_not_granted": 1}),
    ]
    with pytest.raises(SystemExit, match="0"):
        main(["audit", "query", str(log), "--denied", "--records", "--agent", "team/bot"])
    assert "by AgentScopeBinding team/never@1" in capsys.readouterr().out
