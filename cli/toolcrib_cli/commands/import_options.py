"""What every import is given: the namespace of the manifests, and scopes."""

from __future__ import annotations

import re

from toolcrib.names import DNS_LABEL, SCOPE, is_reserved_scope
from toolcrib.text import escape
from toolcrib_cli.errors import CliError, Exit


def check(namespace: str, scopes: tuple[str, ...]) -> None:
    """Refuse names and scopes that no manifest may have. Raises CliError."""
    if re.fullmatch(DNS_LABEL, namespace) is None:
        raise CliError(
            f"-n {escape(namespace)} is not a namespace name",
            hint="use lower-case letters, digits and hyphens, at most 63",
            code=Exit.USAGE,
        )
    for one in scopes:
        if is_reserved_scope(one):
            raise CliError(
                f"--scope {escape(one)} is a power of the registry; no tool can carry it",
                hint="choose another, as in github:use",
                code=Exit.USAGE,
            )
        if re.fullmatch(SCOPE, one) is None:
            raise CliError(
                f"--scope {escape(one)} is not a scope",
                hint="use letters, digits and _.:/- , as in github:use",
                code=Exit.USAGE,
            )
