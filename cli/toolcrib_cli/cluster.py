"""What a cluster holds of Toolcrib's world, read with the rights of a kubeconfig: nothing is written there."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import quote

from toolcrib.resources import GROUP, KINDS
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.three_way_merge import LiveWorld
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, OperatorError
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.namespace import NAMESPACE

READ = (*KINDS, NAMESPACE, SERVICE_ACCOUNT)
_TIMEOUT = 30.0
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def can_connect(kubeconfig: str | None) -> bool:
    """Whether there is a kubeconfig (the given one, or several joined by colons, else ~/.kube/config) or a pod's account."""
    return any(path.is_file() for path in _paths(kubeconfig)) or (not kubeconfig and _POD.is_file())


def read_world(*, kubeconfig: str | None = None, context: str | None = None) -> LiveWorld:
    """Tools, bindings, namespaces and service accounts of a cluster; every kind counts as listed.

    Args:
        kubeconfig: a file, or several joined by colons; None means ~/.kube/config, else the pod's own account.
        context: of that file; None means its current one.

    Raises:
        CliError: there is no usable configuration, the API server does not answer, or a right is missing.
    """
    with contextlib.closing(connect(kubeconfig, context)) as kube:
        return asyncio.run(_read(kube))


def read_issuer(*, kubeconfig: str | None = None, context: str | None = None) -> str:
    """The issuer of the cluster's service accounts; empty where the API server does not say. Errors as `read_world`."""
    with contextlib.closing(connect(kubeconfig, context)) as kube:
        try:
            answer = asyncio.run(kube.request("GET", "/.well-known/openid-configuration"))
        except OperatorError:
            return ""
    return str(answer.get("issuer", "")) if isinstance(answer, dict) else ""


def read_config_map(
    namespace: str, name: str, *, kubeconfig: str | None = None, context: str | None = None
) -> dict[str, str]:
    """The data of a ConfigMap. Errors as `read_world`; one that is not there is one."""
    path = f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}"
    with contextlib.closing(connect(kubeconfig, context)) as kube:
        try:
            answer = asyncio.run(kube.request("GET", path))
        except Gone as error:
            raise CliError(
                f"there is no ConfigMap {namespace}/{name}",
                hint="check the name, and the cluster: --context NAME or --kubeconfig FILE",
                code=Exit.USAGE,
            ) from error
        except Refused as error:
            code = Exit.NOT_PERMITTED if error.status == 403 else Exit.UNREACHABLE
            raise CliError(
                f"the ConfigMap {namespace}/{name} cannot be read: {error.message}",
                hint=f"check your right to it: kubectl auth can-i get configmap/{name} -n {namespace}",
                code=code,
            ) from error
        except OperatorError as error:
            raise CliError(str(error), code=Exit.UNREACHABLE) from error
    if not isinstance(answer, dict) or answer.get("kind") != "ConfigMap":
        raise CliError(
            f"the ConfigMap {namespace}/{name} cannot be read: the response is not one of a Kubernetes API server",
            hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
            code=Exit.UNREACHABLE,
        )
    return {str(k): str(v) for k, v in (answer.get("data") or {}).items()}


def connect(kubeconfig: str | None, context: str | None) -> Kube:
    given = kubeconfig or next((str(path) for path in _paths(None) if path.is_file()), None)
    if context is not None and given is None:
        raise CliError("--context: there is no kubeconfig", hint="specify --kubeconfig FILE", code=Exit.USAGE)
    try:
        return Kube(
            None if given is None else Path(given),
            context=context,
            timeout=_TIMEOUT,
            threads=len(READ),
            user_agent="toolcrib-cli",
        )
    except ClusterUnavailable as error:
        raise CliError(
            str(error), hint="specify --kubeconfig FILE and --context NAME", code=Exit.USAGE
        ) from error


async def _read(kube: Kube) -> LiveWorld:
    cluster, world = Cluster(kube), LiveWorld(required=READ)
    found = await asyncio.gather(*(cluster.list(kind) for kind in READ), return_exceptions=True)
    for kind, listing in zip(READ, found, strict=True):
        if isinstance(listing, ClusterUnavailable):
            raise _refused(kind, listing) from listing
        if isinstance(listing, BaseException):
            raise listing
        world.replace(kind, listing.objects, listing.resource_version)
    return world


def _refused(kind: str, error: ClusterUnavailable) -> CliError:
    status = error.__cause__.status if isinstance(error.__cause__, Refused) else 0
    if status == 403:
        plural = f"{KINDS[kind].plural}.{GROUP}" if kind in KINDS else f"{kind.lower()}s"
        return CliError(
            str(error),
            hint=f"you need the right to list {plural} in all namespaces: kubectl auth can-i list {plural} -A",
            code=Exit.NOT_PERMITTED,
        )
    if status == 401:
        return CliError(
            "the API server does not accept your credentials", hint=str(error), code=Exit.NOT_PERMITTED
        )
    missing = isinstance(error.__cause__, Gone)
    hint = "" if missing else "is it the right cluster? Specify --kubeconfig FILE or --context NAME"
    return CliError(str(error), hint=hint, code=Exit.UNREACHABLE)


def _paths(kubeconfig: str | None) -> list[Path]:
    if kubeconfig:
        return [Path(part) for part in kubeconfig.split(":") if part]
    return [Path.home() / ".kube" / "config"]
