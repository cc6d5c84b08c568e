"""`POST /oauth/token` of the local issuer: the client credentials grant (RFC 6749 §4.4), with its own error form."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from toolcrib_registry.http.bodies import BODY
from toolcrib_registry.http.route_table import FORM_BYTES
from toolcrib_registry.identity.issuer.errors import NotMintable
from toolcrib_registry.identity.issuer.local import TTL, ClientTokens, LocalIssuer

MAX_FIELDS = 16
_FORM = "application/x-www-form-urlencoded"
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class TokenAnswer(BaseModel):
    """RFC 6749 §5.1."""

    access_token: str
    token_type: str = Field(examples=["Bearer"])
    expires_in: int = Field(description="seconds", examples=[TTL])
    scope: str | None = Field(default=None, description="Only if the request named scopes.")


class TokenProblem(BaseModel):
    """RFC 6749 §5.2."""

    error: str = Field(examples=["invalid_client"])
    error_description: str


class TokenRefused(Exception):
    """The request gets no token; `error` is one of RFC 6749 §5.2."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        self.error = error
        self.description = description
        self.status = status
        super().__init__(description)


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["grant_type"],
                    "properties": {
                        "grant_type": {"type": "string", "enum": ["client_credentials"]},
                        "client_id": {"type": "string", "description": "namespace/name"},
                        "client_secret": {"type": "string", "format": "password"},
                        "scope": {"type": "string", "description": "space-separated"},
                    },
                },
                "example": {
                    "grant_type": "client_credentials",
                    "client_id": "heist/safecracker",
                    "client_secret": "…",
                },
            }
        },
    },
    "security": [{}],
}


def router(clients: ClientTokens) -> APIRouter:
    """The token endpoint."""
    routes = APIRouter(tags=["identity"])

    @routes.post(
        "/oauth/token",
        summary="A token for a client of the local issuer",
        response_model=TokenAnswer,
        response_model_exclude_none=True,
        responses={
            400: {"model": TokenProblem, "description": "Not a request that can be answered with a token"},
            401: {"model": TokenProblem, "description": "The client is unknown or its secret is wrong"},
        },
        openapi_extra=_BODY,
    )
    async def token(request: Request) -> JSONResponse:
        try:
            answer = _answer(clients, request, _body(request))
        except TokenRefused as refused:
            headers = dict(_NO_STORE)
            if refused.status == 401:
                headers["WWW-Authenticate"] = 'Basic realm="toolcrib", charset="UTF-8"'
            problem = {"error": refused.error, "error_description": refused.description}
            return JSONResponse(problem, refused.status, headers)
        return JSONResponse(answer, 200, dict(_NO_STORE))

    return routes


def _answer(clients: ClientTokens, request: Request, body: bytes) -> dict[str, Any]:
    form = _form(request, body)
    namespace, name = _client(clients.issuer, request.headers.getlist("authorization"), form)
    grant = form.get("grant_type")
    if grant is None:
        raise TokenRefused("invalid_request", "grant_type is missing")
    if grant != "client_credentials":
        raise TokenRefused("unsupported_grant_type", "only the grant type client_credentials is supported")
    wanted = form.get("scope")
    answer: dict[str, Any] = {"token_type": "Bearer", "expires_in": clients.ttl}
    if wanted is not None:
        # without a scope parameter bindings decide at every use; a token that names scopes carries no others
        if not wanted.split() or not set(wanted.split()) <= clients.granted(namespace, name):
            raise TokenRefused("invalid_scope", "a scope is malformed or not granted to this client")
        answer["scope"] = " ".join(dict.fromkeys(wanted.split()))
    try:
        answer["access_token"] = clients.issuer.mint(
            namespace, name, answer.get("scope"), clients.ttl, client=f"{namespace}/{name}"
        )
    except NotMintable:
        raise TokenRefused("invalid_scope", "a scope is malformed or not granted to this client") from None
    return answer


def _body(request: Request) -> bytes:
    body: bytes | None = request.scope[BODY]
    if body is None:
        raise TokenRefused("invalid_request", f"the body is larger than {FORM_BYTES} bytes")
    return body


def _form(request: Request, body: bytes) -> dict[str, str]:
    """The parameters; RFC 6749 §3.2: none twice, an empty one counts as left out, none in the URL."""
    if request.url.query:
        raise TokenRefused("invalid_request", "send parameters in the body, not in the URL")
    kind = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if kind != _FORM:
        raise TokenRefused("invalid_request", f"the body must be {_FORM}")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise TokenRefused("invalid_request", "the body cannot be read") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise TokenRefused("invalid_request", "a parameter appears more than once")
    return {k: v for k, v in form.items() if v}


def _client(issuer: LocalIssuer, headers: list[str], form: dict[str, str]) -> tuple[str, str]:
    if headers and ("client_secret" in form or len(headers) > 1):
        raise TokenRefused("invalid_request", "authenticate in the header or in the body, not both")
    if headers:
        client_id, secret = _basic(headers[0])
        if form.get("client_id", client_id) != client_id:
            raise TokenRefused("invalid_request", "client_id differs from the header's")
    else:
        client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
    client = issuer.check_secret(client_id, secret) if client_id and secret else None
    if client is None:
        raise TokenRefused("invalid_client", "the client is unknown or its secret is wrong", 401)
    return client


def _basic(header: str) -> tuple[str, str]:
    """RFC 6749 §2.3.1: id and secret are form-encoded before they become user and password."""
    scheme, _, value = header.partition(" ")
    refused = TokenRefused("invalid_client", "the Authorization header is not readable as Basic", 401)
    if scheme.lower() != "basic":
        raise refused
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        if not colon:
            raise refused
        return unquote_plus(user, errors="strict"), unquote_plus(password, errors="strict")
    except (binascii.Error, ValueError):
        raise refused from None
