"""The example of the guide does what the guide says, on the laptop as it is."""

from pathlib import Path

import httpx

from local_mode import HEIST, LocalMode

LIMITS = HEIST.parent / "limits"


def test_the_example_grants_three_queries_a_minute(tmp_path: Path) -> None:
    with LocalMode(tmp_path, HEIST, LIMITS) as local:
        bearer = {"Authorization": f"Bearer {local.token('planner')}"}

        def call(tool: str, **arguments: object) -> httpx.Response:
            return httpx.post(f"{local.url}/tools/{tool}", headers=bearer, json=arguments, timeout=10)

        answers = [call("database_query", query="SELECT 1") for _ in range(5)]
        other = call("calculator", expression="2 + 3")

    assert [a.status_code == 429 for a in answers] == [False] * 3 + [True] * 2
    assert answers[-1].json()["limit"] == "per_minute"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert other.status_code == 200
