"""Agents of the running local mode: manifests in its data folder, so that they outlive it. Loads no server part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcrib.resources.meta import API_VERSION
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local import questions
from toolcrib_cli.local.store import AGENTS, write_durably
from toolcrib_cli.stopping.source import Body


class LocalAgents:
    """Those of the running local mode of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def objects(self, kinds: Sequence[str], namespace: str | None) -> list[Body]:
        """As `Source`."""
        answer = questions.ask(self._folder, kind=list(kinds), namespace=namespace)
        return [each["object"] for each in answer["objects"]]

    def agent(self, namespace: str, name: str) -> Body | None:
        """As `Source`."""
        found = self._held(namespace, name)
        return None if found is None else found["object"]

    def write(self, namespace: str, name: str, spec: dict[str, Any]) -> int:
        """As `Source`; an Agent of the user's own manifests is left alone."""
        file = self._folder / AGENTS / f"{namespace}.{name}.json"
        held = self._held(namespace, name)
        if held is not None and not str(held["manifest"]).startswith(f"{file}:"):
            raise CliError(
                f"the Agent {namespace}/{name} stands in {held['manifest']}",
                hint=f"set spec.suspended to {str(spec['suspended']).lower()} there",
                code=Exit.USAGE,
            )
        metadata = {"name": name, "namespace": namespace}
        kept = {k: v for k, v in spec.items() if v is not None}
        made = {"apiVersion": API_VERSION, "kind": "Agent", "metadata": metadata, "spec": kept}
        try:
            write_durably(file, json.dumps(made, indent=1))
        except OSError as error:
            raise CliError(f"cannot write {file}: {error.strerror}") from error
        before = 0 if held is None else int(held["object"]["metadata"]["generation"])
        same = held is not None and _spec(held["object"]) == _spec(made)
        return before if same else before + 1

    def _held(self, namespace: str, name: str) -> dict[str, Any] | None:
        answer = questions.ask(self._folder, kind=["Agent"], namespace=namespace, name=name)
        found: dict[str, Any] | None = next(iter(answer["objects"]), None)
        return found


def _spec(agent: Body) -> dict[str, Any]:
    return {"suspended": False, **agent["spec"]}
