"""What is common to all questions of `toolcrib access`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.authorizer import Action
from toolcrib_cli.manifests import FileContent
from toolcrib_cli.prediction.outcome import read_files
from toolcrib_operator.kinds.binding import BINDINGS


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """What is common to all questions.

    Args:
        bindings: manifests as if they were applied, and how their objects without a namespace are read.
        delete: `Kind/namespace/name` of objects as if they were deleted.
        prune: tools and bindings that `bindings` does not hold count as deleted too.
    """

    action: Action = Action.CALL
    namespace: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] | None = None
    groups: tuple[str, ...] = ()
    client: str | None = None
    bindings: tuple[Path, ...] = ()
    delete: tuple[str, ...] = ()
    prune: bool = False
    _read: list[list[FileContent]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def of_bindings(self) -> bool:
        """Whether the manifests hold bindings alone, which is all that a registry is asked about."""
        return all(item.kind in BINDINGS for content in self.contents() for item in content.objects)

    def contents(self) -> list[FileContent]:
        """The manifests, read once: standard input can be read no second time."""
        if self.bindings and not self._read:
            self._read.append(
                read_files(self.bindings, namespace=self.namespace or "default", empty=self.prune)
            )
        return self._read[0] if self._read else []
