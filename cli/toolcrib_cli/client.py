"""The command line's client of the registry: one request, one answer, errors with a hint."""

from __future__ import annotations

import json
from typing import Any

import httpx

from toolcrib import __version__
from toolcrib.text import truncate
from toolcrib_cli.errors import CliError, Exit


class RegistryClient:
    """Plain HTTP to one registry as one identity."""

    def __init__(self, url: str, token: str, *, timeout: float = 30.0) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}", "User-Agent": f"toolcrib-cli/{__version__}"}
        # a proxy between the command line and a registry would see the token
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON answer of a GET.

        Raises:
            CliError: the registry does not answer, refuses, or fails.
        """
        return self._answer("GET", path, params={k: v for k, v in params.items() if v is not None})

    def post(self, path: str, body: Any) -> Any:
        """The JSON answer of a POST; errors as `get`."""
        return self._answer("POST", path, json=body)

    def _answer(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = self._http.request(method, path, **kwargs)
        except httpx.TransportError as error:
            raise CliError(
                f"no registry answers at {self.url} ({type(error).__name__})",
                hint="start one with `toolcrib up`, or say where it is with --url or TOOLCRIB_URL",
                code=Exit.UNREACHABLE,
            ) from error
        except httpx.InvalidURL as error:
            raise CliError(f"not an address: {self.url}", code=Exit.USAGE) from error
        if response.is_success:
            return _json(response)
        raise _error(response)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


def _words(answer: Any) -> str:
    """A tool's own error in a line: the detail of its problem document, else its JSON."""
    if isinstance(answer, dict):
        answer = answer.get("detail") or answer.get("message") or answer.get("error") or answer
    return truncate(answer if isinstance(answer, str) else json.dumps(answer), 500)


def _error(response: httpx.Response) -> CliError:
    problem = _json(response)
    body = problem if isinstance(problem, dict) else {}
    code = str(body.get("code", f"http_{response.status_code}"))
    detail = str(body.get("detail") or body.get("title") or response.reason_phrase)
    for item in body.get("errors") or []:
        if isinstance(item, dict):
            detail += f"\n  {item.get('pointer', '')}: {item.get('message', item.get('detail', ''))}"
    if body.get("upstream"):
        detail += f"\n  the tool says: {_words(body['upstream'])}"
    ended = {401: Exit.NOT_PERMITTED, 403: Exit.NOT_PERMITTED, 404: Exit.NOT_PERMITTED, 503: Exit.UNREACHABLE}
    hints = {
        401: "the token is missing, expired or of another issuer",
        403: "list what this identity may call with `toolcrib tools`",
        409: "name the tool by its id, namespace/name",
    }
    return CliError(
        f"{code}: {detail}",
        hint=hints.get(response.status_code, ""),
        code=ended.get(response.status_code, Exit.FAILED),
    )
