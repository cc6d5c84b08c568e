"""The connection to the API server, by the official client. The only module that imports it.

Requests run in threads and are plain JSON: what the operator reads and writes has models of its own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import urllib3
from kubernetes import client, config

from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, OperatorError

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
_MESSAGE = 300
_load_file: Any = config.load_kube_config
_load_pod: Any = config.load_incluster_config


@dataclass(frozen=True)
class ApiAccess:
    """How to reach the API server, for kopf, which has its own HTTP client."""

    server: str
    ca_path: str | None
    insecure: bool
    authorization: str | None
    certificate_path: str | None
    key_path: str | None


class Refused(OperatorError):
    """The API server answered with an error status; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{status}: {message}")


class Kube:
    """Requests to one API server, with the rights of a kubeconfig or of the pod."""

    def __init__(
        self,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        timeout: float = 10.0,
        threads: int = 12,
        user_agent: str = "toolcrib-operator",
    ) -> None:
        """
        Args:
            kubeconfig: a file; None means the pod's service account, else KUBECONFIG or ~/.kube/config.
            context: of the file; None means its current one.
            timeout: of one request, in seconds; connecting gets at most 3 of them.
            threads: requests at a time.

        Raises:
            ClusterUnavailable: there is no usable configuration.
        """
        self._configuration = client.Configuration()
        try:
            if kubeconfig is not None:
                _load_file(str(kubeconfig), context=context, client_configuration=self._configuration)
            else:
                try:
                    _load_pod(client_configuration=self._configuration)
                except config.ConfigException:
                    _load_file(client_configuration=self._configuration)
        except (config.ConfigException, OSError, ValueError) as error:
            raise ClusterUnavailable(f"no usable kubeconfig: {error}") from error
        self._configuration.retries = urllib3.Retry(0, redirect=0)
        self._configuration.connection_pool_maxsize = threads
        self._client = client.ApiClient(self._configuration)
        self._timeout = timeout
        self._user_agent = user_agent
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kube")

    def access(self) -> ApiAccess:
        """The present credentials; a rotated token is read again."""
        c = self._configuration
        return ApiAccess(
            server=c.host,
            ca_path=c.ssl_ca_cert,
            insecure=not c.verify_ssl,
            authorization=self._authorization(),
            certificate_path=c.cert_file,
            key_path=c.key_file,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        seconds: float | None = None,
    ) -> Any:
        """One request; the decoded answer.

        Raises:
            Refused: an error status that none of the following stands for.
            Conflict: 409. Gone: 404.
            ClusterUnavailable: no answer, 429 or a server error.
        """
        url = self._configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": self._user_agent}
        call = functools.partial(self._send, method, url, headers, body, seconds or self._timeout)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Release threads and connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.rest_client.pool_manager.clear()

    def _authorization(self) -> str | None:
        auth = self._configuration.auth_settings().get("BearerToken")
        return auth["value"] if auth else None

    def _send(self, method: str, url: str, headers: dict[str, str], body: Any, timeout: float) -> Any:
        if (authorization := self._authorization()) is not None:
            headers["Authorization"] = authorization
        try:
            answer = self._client.call_api(
                method, url, headers, body=body, _request_timeout=(min(3.0, timeout), timeout)
            )
            status, data = answer.status, answer.response.data
        except client.ApiException as error:
            raise ClusterUnavailable(f"no answer from the API server: {error.reason}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnavailable(f"no answer from the API server: {_cause(error)}") from error
        if status < 300:
            try:
                return orjson.loads(data) if data else None
            except ValueError:
                raise ClusterUnavailable(
                    "the response is not JSON; check that the address is that of a Kubernetes API server"
                ) from None
        message = _message(data)
        if status == 409:
            raise Conflict(message)
        if status == 404:
            raise Gone(message)
        if status == 429 or status >= 500:
            raise ClusterUnavailable(f"the API server answered {status}: {message}")
        raise Refused(status, message)


def _cause(error: BaseException) -> str:
    """What the system said of a connection that failed, else the kind of failure."""
    if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
        below = below.__cause__ or below.__context__
    return type(error).__name__


def _message(data: bytes) -> str:
    """The message of a Status object; nothing of any other body, which may hold anything."""
    try:
        body = orjson.loads(data)
    except ValueError:
        return "no Status object"
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return "no Status object"
    return str(body.get("message", ""))[:_MESSAGE]
