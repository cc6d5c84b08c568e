"""Which Toolcrib a command is about: the cluster that is named, else the running local mode, else the environment's cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.errors import CliError, Exit

if TYPE_CHECKING:
    from toolcrib_operator.adapters.kube import Kube

Namespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        help="Only this namespace.",
        show_default="all",
        autocompletion=completion.object_namespaces,
    ),
]


def space(key: str, namespace: str | None) -> str | None:
    """The namespace of `namespace/name`, else that of -n; None: of any.

    Raises:
        CliError: they differ.
    """
    own, slash, _ = key.partition("/")
    if slash and namespace not in (None, own):
        raise CliError(
            f"{key} is not in the namespace {namespace}",
            hint=f"omit -n, or specify -n {own}",
            code=Exit.USAGE,
        )
    return own if slash else namespace


@contextmanager
def place(
    data: Path | None, kubeconfig: str | None, context: str | None, *, told: bool = True
) -> Iterator[Path | Kube]:
    """The data folder of the running local mode, or a cluster; `told`: a person is told which local mode is asked.

    Raises:
        CliError: there is neither.
    """
    from toolcrib_cli.local import store

    folder = options.data_folder(data)
    # KUBECONFIG does not choose: `get` and `call` take the local mode too
    named = context is not None or (kubeconfig is not None and kubeconfig != os.environ.get("KUBECONFIG"))
    state = None if named else store.read_running(folder)
    if state is not None:
        if told:
            output.line(
                f"asking the local mode at {state['url']}; --context or --kubeconfig asks a cluster",
                stderr=True,
            )
        yield folder
        return
    from toolcrib_cli import cluster

    try:
        connected = cluster.connect(kubeconfig, context)
    except CliError as error:
        if named:
            raise
        hint = "for the local mode, start `toolcrib up` with the same --data; for a cluster, specify --kubeconfig FILE"
        raise CliError(
            f"no local mode runs in {folder}, and there is {error.message}", hint=hint, code=error.code
        ) from error
    with closing(connected) as kube:
        yield kube


def ask(
    question: str, *, otherwise: str, refused: str = "not approved", without: str = "specify --yes"
) -> None:
    """Ask the person at the terminal.

    Args:
        question: what is asked.
        otherwise: the hint after a no; `refused` is the error.
        without: the hint where nobody can answer.

    Raises:
        CliError: the answer is no, or standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise CliError(
            "standard input is not a terminal, so nobody can confirm", hint=without, code=Exit.USAGE
        )
    if not typer.confirm(question, err=True):
        raise CliError(refused, hint=otherwise)
