"""Which model is given which key."""

from pathlib import Path

import pytest

from toolcrib_cli.sessions import team
from toolcrib_cli.sessions.definition import Definition


@pytest.mark.parametrize(
    ("url", "base", "sent"),
    [
        ("https://api.openai.com/v1", None, "key"),
        ("https://models.example/v1", "https://models.example/v1", "key"),
        ("https://models.example/v1", None, "none"),
        ("http://api.openai.com/v1", None, "none"),
        ("https://api.openai.com.evil.example/v1", None, "none"),
    ],
)
def test_the_key_of_the_environment_goes_to_openai_and_to_its_base_url_alone(
    url: str, base: str | None, sent: str, tmp_path: Path
) -> None:
    environ = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": base}
    agents = [{"name": "a", "account": "h/a", "prompt": "x"}]
    made = Definition.model_validate({"session": {"name": "n"}, "model": {"url": url}, "agents": agents})
    with team.composed(
        made, "http://127.0.0.1:1", folder=tmp_path, mint=lambda account: lambda: "t", environ=environ.get
    ) as composed:
        assert composed.model(made.agents[0])._client._refresh_api_key() == sent


def test_a_key_file_beside_the_session_is_the_key_of_its_model_alone(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of-the-file\n")
    own = {"url": "https://models.example/v1", "keyFile": "key"}
    agents = [
        {"name": "a", "account": "h/a", "prompt": "x", "model": own},
        {"name": "b", "account": "h/b", "prompt": "x"},
    ]
    made = Definition.model_validate(
        {"session": {"name": "n"}, "model": {"url": "https://other.example/v1"}, "agents": agents}
    )
    with team.composed(
        made,
        "http://127.0.0.1:1",
        folder=tmp_path,
        mint=lambda account: lambda: "t",
        environ=lambda name: None,
    ) as composed:
        keys = [composed.model(agent)._client._refresh_api_key() for agent in made.agents]
    assert keys == ["of-the-file", "none"]
