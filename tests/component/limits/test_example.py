"""The example of the guide does what the guide says."""

import httpx
import yaml

from local_mode import HEIST
from registry_harness import backend, running_registry
from slow_backend import slow_backend
from toolcrib import publishing
from toolcrib.resources.bindings import AgentScopeBinding
from toolcrib.resources.tools import Tool

EXAMPLE = HEIST.parent / "limits" / "hacker-queries.yaml"


def test_the_example_grants_three_queries_a_minute() -> None:
    query = publishing.tool(
        Tool.model_validate(yaml.safe_load((HEIST / "32-tool-database-query.yaml").read_text()))
    )
    grant = publishing.binding(
        AgentScopeBinding.model_validate(yaml.safe_load(EXAMPLE.read_text())), namespaces=("heist",)
    )
    with slow_backend() as quick:
        quick.answer()
        here = query.model_copy(update={"backend": backend(quick.port)})
        with running_registry([here], [grant]) as r:

            def call() -> httpx.Response:
                headers = r.auth("heist", "hacker")
                return r.http.post(
                    f"{r.url}/tools/database_query", headers=headers, json={"query": "SELECT 1"}
                )

            answers = [call() for _ in range(5)]

    assert [a.status_code for a in answers] == [200] * 3 + [429] * 2
    assert answers[-1].json()["limit"] == "per_minute"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
