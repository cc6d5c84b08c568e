"""Requests to an API server with the rights of a kubeconfig, and what to do about each way in which one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from toolcrib.resources import API_VERSION, KINDS
from toolcrib_cli.errors import CliError, Exit
from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import Conflict, Gone, OperatorError

_PAGE = "500"
_WHICH_CLUSTER = "is it the right cluster? Specify --kubeconfig FILE or --context NAME"
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True)
class Hints:
    """What to do, by how a request failed."""

    denied: str = ""
    """401 and 403."""
    conflict: str = "somebody has changed it meanwhile: look at it again"
    gone: str = "are the custom resources installed?"


_NONE = Hints()


def path(kind: str, namespace: str | None, name: str | None = None) -> str:
    """Of one of Toolcrib's kinds: all objects, those of a namespace, or one."""
    space = "" if namespace is None else f"/namespaces/{quote(namespace)}"
    return f"/apis/{API_VERSION}{space}/{KINDS[kind].plural}" + ("" if name is None else f"/{quote(name)}")


def asked(request: Coroutine[Any, Any, Any], what: str, hints: Hints = _NONE) -> dict[str, Any]:
    """The object that answers; `what` was to be done, as in `list tools`.

    Raises:
        CliError: it was refused, or nothing or something else answers. Its cause is the operator's error.
    """
    try:
        found = asyncio.run(request)
    except Refused as error:
        denied = error.status in (401, 403)
        raise CliError(
            f"cannot {what}: {error.message}",
            hint=hints.denied if denied else "",
            code=Exit.NOT_PERMITTED if denied else Exit.FAILED,
        ) from error
    except Conflict as error:
        raise CliError(f"cannot {what}: {error}", hint=hints.conflict) from error
    except Gone as error:
        raise CliError(f"cannot {what}: {error}", hint=hints.gone) from error
    except OperatorError as error:
        raise CliError(f"cannot {what}: {error}", hint=_WHICH_CLUSTER, code=Exit.UNREACHABLE) from error
    # of a list, an object, a review and a Status: one of them has each
    if not isinstance(found, dict) or not ({"metadata", "status"} & found.keys()):
        raise CliError(
            "the response is not one of a Kubernetes API server", hint=_WHICH_CLUSTER, code=Exit.UNREACHABLE
        )
    return found


def listed(kube: Kube, kind: str, namespace: str | None, hints: Hints = _NONE) -> list[Mapping[str, Any]]:
    """All objects of a kind, page by page; errors as `asked`."""
    query, found = {"limit": _PAGE}, list[Mapping[str, Any]]()
    while True:
        page = asked(
            kube.request("GET", path(kind, namespace), query=query), f"list {KINDS[kind].plural}", hints
        )
        # items of a list do not name their kind
        found += [{"apiVersion": API_VERSION, "kind": kind, **each} for each in page.get("items") or ()]
        if not (more := (page.get("metadata") or {}).get("continue")):
            return found
        query = {"limit": _PAGE, "continue": more}


def username(kube: Kube, hints: Hints = _NONE) -> str:
    """Who asks, as the API server knows them; errors as `asked`."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = asked(kube.request("POST", _REVIEW, body=body), "ask who you are", hints)
    return str(answer["status"]["userInfo"]["username"])
