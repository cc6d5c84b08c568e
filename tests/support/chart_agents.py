"""The pods that the operator makes of the Agents of a rendering, by the options that the same rendering gives it."""

from collections.abc import Iterator
from copy import deepcopy

from chart import Object, Rendered, named
from toolcrib.resources.agents import Agent
from toolcrib_operator import options
from toolcrib_operator.settings import AgentSettings
from toolcrib_operator.workloads.manifests import workload


def agent_settings(rendered: Rendered) -> AgentSettings:
    """What the operator of this rendering is told about Agents, as the kubelet passes it on."""
    (container,) = (
        item
        for deployment in rendered.of("Deployment")
        for item in deployment["spec"]["template"]["spec"]["containers"]
        if item["name"] == "operator"
    )
    given = [text.replace("$$", "$") for text in container["args"][1:] if not text.startswith("--extra=")]
    settings = options.parse(given, {}).loop.agents
    assert settings is not None
    return settings


def agents(rendered: Rendered) -> list[Object]:
    """The Agents of the release; not the empty ones of an uninstall."""
    return [item for item in rendered.of("Agent") if "run" in item["spec"]]


def agent_workloads(rendered: Rendered) -> Iterator[Object]:
    """The Deployments and Jobs of the Agents of the release."""
    settings = agent_settings(rendered)
    for item in agents(rendered):
        about = {"uid": "1", "generation": 1}
        made = deepcopy(item)
        made["metadata"] |= about
        yield workload(Agent.model_validate(made), settings)


def agent_pods(rendered: Rendered) -> Iterator[tuple[str, Object]]:
    """Their pod templates, as `Rendered.pods` gives those of the chart."""
    for item in agent_workloads(rendered) if agents(rendered) else ():
        yield named(item), item["spec"]["template"]
