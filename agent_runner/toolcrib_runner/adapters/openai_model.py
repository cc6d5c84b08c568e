"""A model behind an OpenAI-compatible chat completions endpoint: the only module that imports `openai`."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from toolcrib import text
from toolcrib_runner.errors import ModelRefused, ModelUnavailable
from toolcrib_runner.ports import Function, FunctionCall, Message, Reply

MAX_MESSAGE = 512


class OpenAIModel:
    """Model `name` at `base_url` (with its `/v1`). `api_key` is asked before every request, so a key may rotate.

    `max_tokens` bounds one completion; None leaves it to the endpoint.

    Raises:
        ValueError: `base_url` is no address.
    """

    def __init__(
        self,
        base_url: str,
        name: str,
        api_key: Callable[[], str],
        *,
        max_tokens: int | None = None,
    ) -> None:
        self.name = name
        try:
            (urlsplit(base_url).hostname or "").encode("idna")  # as the resolver does
        except ValueError as error:  # UnicodeError is one
            raise ValueError(
                f"the model's URL is not valid: {error}; specify http://HOST:PORT/PATH or https://HOST/PATH"
            ) from error
        self._where = urlsplit(base_url).netloc.rpartition("@")[2]
        self._max_tokens = max_tokens
        self._client = openai.OpenAI(
            api_key=api_key,
            base_url=base_url,
            # The loop retries, counts and says so; the client's own silent retries would hide an outage.
            max_retries=0,
            # A proxy is for what is outside: a model on this machine is reached directly.
            http_client=openai.DefaultHttpxClient(
                trust_env=not _is_loopback(base_url),
                follow_redirects=False,
                event_hooks={"response": [_bound]},
            ),
        )

    def complete(self, messages: Sequence[Message], functions: Sequence[Function], timeout: float) -> Reply:
        """One chat completion; see `ports.Model`."""
        request: dict[str, Any] = {"model": self.name, "messages": list(messages), "timeout": timeout}
        if functions:
            request["tools"] = list(functions)
        if self._max_tokens is not None:
            request["max_tokens"] = self._max_tokens
        try:
            completion = self._client.chat.completions.create(**request)
        except openai.APIStatusError as error:
            raise self._of_status(error) from None
        except openai.APITimeoutError:
            raise ModelUnavailable(f"the model endpoint {self._where} did not respond in time") from None
        except openai.APIConnectionError as error:
            why = error.__cause__ or error
            raise ModelUnavailable(f"the model endpoint {self._where} cannot be reached: {why}") from None
        except openai.OpenAIError as error:
            raise ModelRefused(f"the model endpoint {self._where}: {_short(error)}") from None
        return self._read(completion)

    def check(self, timeout: float) -> None:
        """Ask the endpoint for its models, within `timeout` seconds; an endpoint that has no such list is there too.

        Raises:
            ModelUnavailable: it does not answer.
            ModelRefused: it does not accept the key.
        """
        try:
            self._client.models.list(timeout=timeout)
        except openai.APIStatusError as error:
            if error.status_code in (401, 403) or error.status_code >= 500:
                raise self._of_status(error) from None
        except openai.APITimeoutError:
            raise ModelUnavailable(f"the model endpoint {self._where} did not respond in time") from None
        except openai.APIConnectionError as error:
            why = error.__cause__ or error
            raise ModelUnavailable(f"the model endpoint {self._where} cannot be reached: {why}") from None
        except (openai.OpenAIError, ValueError) as error:
            raise ModelRefused(f"the model endpoint {self._where}: {type(error).__name__}") from None

    def close(self) -> None:
        """Close the pooled connections."""
        self._client.close()

    def _of_status(self, error: openai.APIStatusError) -> ModelUnavailable | ModelRefused:
        status = error.status_code
        message = f"the model endpoint {self._where} returned status {status}: {_short(error)}"
        if status >= 500 or status in (408, 409, 429):
            wait = error.response.headers.get("retry-after", "")
            return ModelUnavailable(
                message, retry_after=min(float(wait), 300.0) if wait.isdecimal() else None
            )
        return ModelRefused(message)

    def _read(self, completion: Any) -> Reply:
        # The client does not validate answers, so an endpoint that speaks something else shows up here.
        try:
            choice = completion.choices[0]
            calls = tuple(
                FunctionCall(str(c.id), _sent(c.function.name), _arguments(c.function.arguments))
                for c in choice.message.tool_calls or ()
                if c.type == "function"
            )
            usage = completion.usage
            return Reply(
                text=_sent(choice.message.content or ""),
                calls=calls,
                finish_reason=str(choice.finish_reason or "stop"),
                prompt_tokens=int(usage.prompt_tokens) if usage else 0,
                completion_tokens=int(usage.completion_tokens) if usage else 0,
                cached_tokens=_cached(usage),
                model=str(completion.model or ""),
            )
        except (AttributeError, IndexError, TypeError, ValueError):
            raise ModelRefused(f"the model endpoint {self._where} did not return a chat completion") from None


class _Bounded(httpx2.SyncByteStream):
    """A body that ends with a timeout: the client's own counts from one byte to the next."""

    def __init__(self, stream: httpx2.SyncByteStream, ends: float) -> None:
        self._stream = stream
        self._ends = ends

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._ends:
                raise httpx2.ReadTimeout("the response takes too long")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _bound(response: httpx2.Response) -> None:
    within = response.request.extensions["timeout"]["read"]
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Bounded(response.stream, time.monotonic() + within)


def _sent(text: str) -> str:
    """The text without lone surrogates, which no request can carry back."""
    return text.encode("utf-8", "replace").decode()


def _arguments(written: Any) -> str:
    """Arguments as JSON; some endpoints give the object itself."""
    return _sent(written) if isinstance(written, str) else json.dumps(written or {})


def _cached(usage: Any) -> int:
    """Prompt tokens from the endpoint's cache; many endpoints say nothing of it."""
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    return cached if isinstance(cached, int) and cached > 0 else 0


def _short(error: openai.OpenAIError) -> str:
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    return text.truncate(text.escape(said if isinstance(said, str) else type(error).__name__), MAX_MESSAGE)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
