"""From the options of `toolcrib access` to where its answer comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.prediction.question import AccessQuestion
    from toolcrib_cli.prediction.sources import Here, Source

_Read = TypeVar("_Read")


def chosen(
    stack: ExitStack,
    *,
    files: list[Path] | None,
    kubeconfig: str | None,
    context: str | None,
    manifests: list[Path] | None,
    registry: str | None,
    trusted_namespace_label: list[str] | None,
    cluster_issuer: str | None,
    as_: str | None,
    data: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    out: Format,
    **asked: Any,
) -> Source:
    """The source that these options name: manifests, a registry, the running local mode, or a cluster.

    Raises:
        CliError: they contradict each other, or there is none.
    """
    from toolcrib_cli.prediction import sources

    question = _asked(tuple(files or ()), **asked)
    if manifests and (registry or context):
        raise CliError(
            "--manifests cannot be combined with --registry or --context",
            hint="specify one source: manifests, a registry or a cluster",
            code=Exit.USAGE,
        )
    if registry:
        if cluster_issuer:
            raise CliError(
                "--cluster-issuer cannot be combined with --registry",
                hint="remove it: a registry knows the cluster's issuer",
                code=Exit.USAGE,
            )
        client = options.registry_client(registry, as_, token_file, data, ca_file, timeout=60)
        return sources.Asked(question, stack.enter_context(client))
    trusted = tuple(trusted_namespace_label or ())
    # KUBECONFIG does not choose: `tools` and `call` take the local mode too
    if not (manifests or context or kubeconfig or trusted or cluster_issuer) and (
        found := _local(stack, question, as_, data, token_file)
    ):
        return found
    if as_:
        raise CliError(
            "--as needs --registry or a running local mode",
            hint="to ask about a subject, pass it as the argument: toolcrib access what-can NAMESPACE/NAME",
            code=Exit.USAGE,
        )
    if manifests:
        return sources.folder_source(question, manifests, trusted=trusted, cluster_issuer=cluster_issuer)
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")
    return sources.cluster_source(
        question, kubeconfig, context, trusted=trusted, cluster_issuer=cluster_issuer
    )


def _local(
    stack: ExitStack, question: AccessQuestion, as_: str | None, data: Path | None, token_file: Path | None
) -> Source | None:
    """The local mode of the data folder, if it runs: its registry, or its manifests for what a registry is not asked."""
    from toolcrib_cli.client import RegistryClient
    from toolcrib_cli.local import accounts, store
    from toolcrib_cli.local.listener import LocalRegistry
    from toolcrib_cli.prediction import sources

    folder = options.data_folder(data)
    state = store.read_running(folder)
    if state is None:
        return None
    url = str(state["url"])
    output.line(
        f"asking the local mode at {url} (for a cluster, specify --context or --kubeconfig)", stderr=True
    )
    if question.prune or not question.of_bindings:
        return sources.folder_source(question, [Path(p) for p in state.get("manifests", ())])
    asked_as = bool(as_ or token_file)
    token = (
        options.bearer(as_, token_file, data)
        if asked_as
        else accounts.mint(folder, "access-review", scopes="registry:admin", ttl=300.0)
    )
    client = stack.enter_context(RegistryClient(url, token, timeout=60, greet=LocalRegistry(folder).greet))
    return sources.Asked(question, client)


def completed_scopes(ctx: typer.Context, incomplete: str) -> list[str]:
    """The scopes of the source that the command line names so far, for a shell's completion; none where it cannot be read."""
    from toolcrib.access.holders import scopes

    return _starting(ctx, lambda here: scopes(here.review()), incomplete)


def completed_tools(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same for tools: their names, or their ids where several have a name."""
    found = _read(ctx, lambda here: [(i, t.name) for i, t in here.review().snapshot.tools.items()])
    return options.matching(dict(found), incomplete)


def completed_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same for namespaces with tools."""
    return _starting(
        ctx, lambda here: {i.partition("/")[0] for i in here.review().snapshot.tools}, incomplete
    )


def completed_subjects(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same for service accounts, as namespace/name."""
    return _starting(ctx, lambda here: here.service_accounts(), incomplete)


def _starting(ctx: typer.Context, of: Callable[[Here], Iterable[str]], incomplete: str) -> list[str]:
    return sorted(text for text in _read(ctx, of) if text.startswith(incomplete))


def _read(ctx: typer.Context, of: Callable[[Here], Iterable[_Read]]) -> list[_Read]:
    from toolcrib_cli import cluster  # noqa: F401  what is loaded does not count as waiting
    from toolcrib_cli.local import store
    from toolcrib_cli.prediction import sources
    from toolcrib_cli.prediction.question import AccessQuestion

    given = ctx.params
    if given.get("registry"):  # which would have to be asked page by page
        return []
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    folders = [Path(p) for p in given.get("manifests") or ()]
    if not (folders or context or kubeconfig) and (
        state := store.read_running(options.data_folder(given.get("data")))
    ):
        folders = [Path(p) for p in state.get("manifests", ())]

    def read() -> Iterable[_Read]:
        if folders:
            return of(sources.folder_source(AccessQuestion(), folders))
        config = kubeconfig or os.environ.get("KUBECONFIG")
        return of(sources.cluster_source(AccessQuestion(), config, context))

    return completion.within(read)


def _asked(files: tuple[Path, ...], **asked: Any) -> AccessQuestion:
    from toolcrib import authorizer
    from toolcrib_cli.prediction.question import AccessQuestion

    scopes: str | None = asked["scopes"]
    return AccessQuestion(
        action=authorizer.Action(asked["action"]),
        namespace=asked["namespace"],
        issuer=asked["issuer"],
        scopes=None if scopes is None else tuple(scopes.split()),
        groups=tuple(asked["group"] or ()),
        client=asked["client"],
        bindings=files,
        delete=tuple(asked["delete"] or ()),
        prune=asked["prune"],
    )
