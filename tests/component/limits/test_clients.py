"""What our own clients make of a used-up limit: the agent's error, what its model reads, the command line's words."""

import json
from pathlib import Path

import pytest

from registry_harness import backend, binding, running_registry, tool
from slow_backend import slow_backend
from toolcrib.wire.publish import PublishedLimits
from toolcrib_cli import main
from toolcrib_runner import DynamicToolAgent, LimitReached, TokenFile
from toolcrib_runner.session.conversation import error_text


def test_an_agent_and_the_command_line_say_how_long_to_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with slow_backend() as quick:
        quick.answer()
        made = tool("calculator", backend=backend(quick.port))
        with running_registry([made], [binding("bot", limits=PublishedLimits(per_minute=1))]) as r:
            token = tmp_path / "token"
            token.write_text(r.token("team", "bot"))
            with DynamicToolAgent("planner", TokenFile(token), r.url, follow=False) as agent:
                agent.use_tool("calculator")
                with pytest.raises(LimitReached) as raised:
                    agent.use_tool("calculator")
            with pytest.raises(SystemExit) as ended:
                main.main(["call", "calculator", "--url", r.url, "--token-file", str(token)])
            said = capsys.readouterr().err

    error = raised.value
    assert error.code == "limit_exceeded"
    assert error.retry_after is not None
    assert 30 <= error.retry_after <= 60
    read = json.loads(error_text(error))["error"]
    assert (read["retry"], read["retry_after_seconds"]) == (True, error.retry_after)
    assert ended.value.code == 1
    assert "limit_exceeded: This grant's limit of 1 call in 60 seconds is used up" in said
    assert "retry in " in said
