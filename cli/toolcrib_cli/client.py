"""The command line's client of the registry: one request, one answer, errors with a hint."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from toolcrib import __version__
from toolcrib.telemetry import logs
from toolcrib.text import truncate
from toolcrib_cli.errors import CliError, Exit
from toolcrib_client import errors, exchange
from toolcrib_client.connection import Connection, Work
from toolcrib_client.exchange import Answer, Asked, Trail

_REVIEW = "/v1/access-review"
_CALLERS = "list the tools that this identity may call with `toolcrib tools`"
_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "/": {"service": str, "tools": list},
    "/local/objects": {"objects": list, "others": dict},
    "/local/approvals": {"tool": str},
    "/local/calls": {},
    "/v1/tools": {"revision": str, "tools": list},
    "/v1/search": {"revision": str, "search_mode": str, "tools": list},
    "/v1/describe": {"tool_id": str, "input_schema": dict},
    "/v1/load": {"tools": list},
    "/v1/call": {"tool_id": str, "result": object},
    _REVIEW: {"revision": str, "at": str},
}
"""What an answer of a registry surely has, by route: anything else may answer at a wrong address."""
_REVIEWERS = (
    "use a token with registry:admin; in the local mode: `toolcrib token NAME --scopes registry:admin`"
)


class _Token:
    """A token, and who looks at the connections it goes over."""

    def __init__(self, token: str, greet: Callable[[Any], None] | None) -> None:
        self._token, self.greet = token, greet

    def __call__(self) -> str:
        return self._token


class RegistryClient:
    """HTTP to one registry as one identity, without a token as nobody. `ca_file` replaces the system's certificate authorities.

    `timeout` is in seconds and bounds a request as a whole. `greet` gets each connection before the token goes over it.

    Raises:
        CliError: the CA file holds no certificate that can be used, or `url` is no address, or one with a query, a
            fragment or credentials (which would take the place of the token).
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        ca_file: Path | None = None,
        timeout: float = 30.0,
        greet: Callable[[Any], None] | None = None,
    ) -> None:
        self.url = url
        self._timeout = timeout
        check_address(url)
        trust(ca_file)
        self._connection = Connection(
            url,
            None if token is None else _Token(token, greet),
            ca_file=None if ca_file is None else str(ca_file),
            user_agent=f"toolcrib-cli/{__version__}",
        )

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON object that answers a GET.

        Raises:
            CliError: the registry does not answer, refuses, or fails, or what answers is no registry.
        """
        query = urlencode({k: v for k, v in params.items() if v is not None}, doseq=True)
        return self._answer(path, Asked("GET", f"{path}?{query}" if query else path, reads=True))

    def post(self, path: str, body: Any) -> Any:
        """The JSON object that answers a POST; errors as `get`."""
        return self._answer(path, Asked("POST", path, reads=False, body=_encoded(body)))

    def _answer(self, path: str, asked: Asked) -> dict[str, Any]:
        try:
            answer = self._connection.send(
                asked, Work.within(self._timeout, Trail(logs.new_request_id(), ""))
            )
        except errors.RegistryAnswerInvalid as error:
            raise self._none(path) from error
        except errors.ToolcribError as error:
            if (why := distrust(error)) is not None:
                raise CliError(
                    f"the certificate of {self.url} is not trusted: {why}",
                    hint="specify its CA with --ca-file or TOOLCRIB_CA_FILE",
                    code=Exit.UNREACHABLE,
                ) from error
            raise CliError(
                f"no registry answers at {self.url} ({cause(error.__cause__ or error)})",
                hint=f"start one with `toolcrib up`, or {_where(path)}",
                code=Exit.UNREACHABLE,
            ) from error
        if not 200 <= answer.status < 300:
            raise refusal(answer, path)
        said = _json(answer.body)
        if not isinstance(said, dict) or not all(
            name in said and isinstance(said[name], kind) for name, kind in _MEMBERS[path].items()
        ):
            raise self._none(path)
        return said

    def _none(self, path: str) -> CliError:
        return CliError(
            f"{self.url} does not look like a Toolcrib registry", hint=_where(path), code=Exit.UNREACHABLE
        )


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        why, hint = "the text is not valid Unicode", "send valid UTF-8"
        raise CliError(f"the request cannot be sent: {why}", hint=hint, code=Exit.USAGE) from error
    except ValueError as error:
        why, hint = "a number is not finite", "replace NaN and Infinity: JSON has neither"
        raise CliError(f"the request cannot be sent: {why}", hint=hint, code=Exit.USAGE) from error
    except RecursionError as error:
        why, hint = "the arguments are nested too deeply", "use at most 32 levels"
        raise CliError(f"the request cannot be sent: {why}", hint=hint, code=Exit.USAGE) from error


def _where(path: str) -> str:
    """By which option a command that asks this route is told the address."""
    return f"specify its address with {'--registry' if path == _REVIEW else '--url or TOOLCRIB_URL'}"


def check_address(url: str) -> None:
    """Refuse what is no address of a registry.

    Raises:
        CliError: it is no address of HTTP, or one with a query, a fragment or credentials.
    """
    try:
        exchange.base_url(url, "it")
    except ValueError as error:
        raise CliError(
            f"invalid address: {re.sub('//[^/]*@', '//', url)} ({str(error).rstrip('.')})",
            hint="specify http://HOST:PORT or https://HOST",
            code=Exit.USAGE,
        ) from error


def trust(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Which certificate authorities to trust: those of the file, else the system's.

    Raises:
        CliError: the file holds no certificate that can be used.
    """
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise CliError(
            f"--ca-file: {ca_file} contains no usable certificate",
            hint="specify a file with PEM certificates",
            code=Exit.USAGE,
        ) from error


def cause(error: BaseException) -> str:
    """What the system said of a request that failed, else the kind of failure: some say nothing."""
    return truncate(str(error), 200) or type(error).__name__


def distrust(error: BaseException | None) -> str | None:
    """Why a certificate was refused, if that is at the bottom of `error`."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _words(answer: Any) -> str:
    """A tool's own error in a line: the detail of its problem document, else its JSON."""
    if isinstance(answer, dict):
        answer = answer.get("detail") or answer.get("message") or answer.get("error") or answer
    return truncate(answer if isinstance(answer, str) else json.dumps(answer), 500)


def _ids(body: dict[str, Any]) -> str:
    """The ids that an ambiguous name stands for, as a hint."""
    found = body.get("tool_ids")
    return (
        f"use one of {', '.join(truncate(str(i), 200) for i in found)}"
        if isinstance(found, list) and found
        else ""
    )


def refusal(response: Answer, path: str) -> CliError:
    """What an answer that is no success says, with a hint what to do."""
    problem = _json(response.body)
    body = problem if isinstance(problem, dict) else {}
    code = str(body.get("code", f"http_{response.status}"))
    detail = str(body.get("detail") or body.get("title") or _phrase(response.status))
    for item in body.get("errors") or []:
        if isinstance(item, dict):
            where = item.get("pointer", item.get("field"))
            detail += f"\n  {f'{where}: ' if where else ''}{item.get('message', item.get('detail', ''))}"
    if body.get("upstream"):
        detail += f"\n  the tool says: {_words(body['upstream'])}"
    if (response.status == 403 or response.status >= 500) and (
        request_id := response.headers.get("x-request-id")
    ):
        detail += f"\n  in the registry's log: request_id {truncate(request_id, 64)}"
    ended = {401: Exit.NOT_PERMITTED, 403: Exit.NOT_PERMITTED, 404: Exit.NOT_PERMITTED, 503: Exit.UNREACHABLE}
    hints = {
        # the detail says why a token was not accepted
        401: "get a new token; in the local mode: `toolcrib token NAME`"
        if code == "invalid_token"
        else "specify --as NAME (local mode) or --token-file FILE with a valid token",
        403: _REVIEWERS if path == _REVIEW else _CALLERS,
        409: _ids(body) or "specify the tool by its id, namespace/name",
    }
    wait = response.headers.get("retry-after", "")
    if wait.isdecimal():
        hints[429] = hints[503] = f"retry in {int(wait)} s"
    if code == "service_pending":  # waiting brings no Service: the detail says what does
        hints.pop(503, None)
    if code == "upstream_unreachable":
        hints[502] = (
            "check that the tool's service runs; `toolcrib get tools -o describe` shows the last probe"
        )
    if close := body.get("close"):
        hints[404] = f"did you mean {' or '.join(map(str, close))}?"
    return CliError(
        f"{code}: {detail}",
        hint=hints.get(response.status) or str(body.get("hint") or ""),
        code=ended.get(response.status, Exit.FAILED),
        problem=code,
    )
