"""`toolcrib up --demo`: the packaged heist, without a checkout."""

from pathlib import Path

from local_mode import LocalMode


def test_the_demonstration_s_agents_have_their_tools_and_a_grant_put_beside_them_counts(
    tmp_path: Path,
) -> None:
    with LocalMode(tmp_path, extra=("--demo",)) as local:
        assert "calculator" in local.toolcrib("tools", "--as", "safecracker").stdout
        assert "calculator" not in local.toolcrib("tools", "--as", "planner").stdout
        assert (local.data / "demo" / "30-tool-calculator.yaml").is_file()
