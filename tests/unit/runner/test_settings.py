"""Settings of the runner's process: flags, variables, and every problem at once."""

import pytest

from toolcrib.errors import SettingsInvalid
from toolcrib_runner.settings import SOURCE


def test_settings_come_from_flags_before_the_environment() -> None:
    environ = {
        "TOOLCRIB_AGENT": "env",
        "TOOLCRIB_URL": "http://r:1",
        "TOOLCRIB_TASK": "t",
        "TOOLCRIB_MAX_TURNS": "3",
    }
    settings = SOURCE.read({"name": "flag", "model_url": "http://m/v1", "task": None}, environ)
    assert (settings.name, settings.registry_url, settings.task, settings.max_turns) == (
        "flag",
        "http://r:1",
        "t",
        3,
    )


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(SettingsInvalid) as invalid:
        SOURCE.read({"name": "a b", "max_turns": "many"}, {"TOOLCRIB_URL": "nowhere"})
    assert [p.split(":")[0] for p in invalid.value.problems] == [
        "--name (TOOLCRIB_AGENT)",
        "--registry-url (TOOLCRIB_URL)",
        "--max-turns (TOOLCRIB_MAX_TURNS)",
    ]
