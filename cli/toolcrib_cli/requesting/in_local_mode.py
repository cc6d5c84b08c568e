"""Access requests of the running local mode: manifests in its data folder. The owner of the files decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib_cli.errors import CliError
from toolcrib_cli.local import questions
from toolcrib_cli.local.store import ACCESS, write_durably
from toolcrib_cli.requesting.asked import Asked, rejecting


class LocalRequests:
    """Those of the running local mode of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def objects(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """As `Source`."""
        kinds = ["AccessRequest", "Tool", "ToolServer"]
        answer = questions.ask(self._folder, kind=kinds, namespace=namespace)
        return [each["object"] for each in answer["objects"]]

    def username(self) -> str | None:
        """As `Source`."""
        return None

    def grant(self, binding: Mapping[str, Any]) -> None:
        """As `Source`."""
        file = self._file(binding["metadata"], "binding")
        if file.exists():
            raise CliError(
                f"{file} is there already", hint="toolcrib access requests --all shows what was decided"
            )
        self._write(file, binding)

    def revoke(self, binding: Mapping[str, Any]) -> None:
        """As `Source`."""
        self._file(binding["metadata"], "binding").unlink(missing_ok=True)

    def reject(self, asked: Asked, reason: str) -> None:
        """As `Source`."""
        metadata = {"name": asked.request.metadata.name, "namespace": asked.request.metadata.namespace}
        file = self._file(metadata, "request")
        try:
            held = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CliError(
                f"{asked.key} is not there any more", hint="`toolcrib access requests` lists those that are"
            ) from error
        held["metadata"]["annotations"] = rejecting(reason)
        self._write(file, held)

    def _file(self, metadata: Mapping[str, Any], what: str) -> Path:
        return self._folder / ACCESS / f"{metadata['namespace']}.{metadata['name']}.{what}.json"

    def _write(self, file: Path, manifest: Mapping[str, Any]) -> None:
        try:
            write_durably(file, json.dumps(manifest, indent=1))
        except OSError as error:
            raise CliError(
                f"cannot write {file}: {error.strerror}", hint="check the data folder and its disk"
            ) from error
