"""`GET /.well-known/jwks.json`: what backends verify call assertions with. Public, answered without a token."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from toolcrib.wire.api import example
from toolcrib_registry.calls.assertions.signing import JWKS_PATH
from toolcrib_registry.http.documentation import problems
from toolcrib_registry.http.requests import DepsOf, ReadRoute

MAX_AGE = 60
"""Half of what a new key waits before it signs (`assertions.keys.SETTLE_SECONDS`)."""


class AssertionKey(BaseModel):
    """RFC 7517, of a P-256 key."""

    kty: str
    crv: str
    x: str
    y: str
    use: str
    alg: str
    kid: str


class AssertionKeySet(BaseModel):
    """The key that signs now, and the one before or after it."""

    model_config = example(
        keys=[{"kty": "EC", "crv": "P-256", "x": "…", "y": "…", "use": "sig", "alg": "ES256", "kid": "…"}]
    )
    keys: list[AssertionKey]


async def jwks(deps: DepsOf, response: Response) -> AssertionKeySet:
    """The keys that verify `Toolcrib-Assertion` headers (ES256)."""
    response.headers["Cache-Control"] = f"public, max-age={MAX_AGE}"
    return AssertionKeySet.model_validate(deps.assertions.keys.jwks())


router = APIRouter(route_class=ReadRoute)
router.add_api_route(
    JWKS_PATH,
    jwks,
    methods=["GET"],
    summary="Keys of call assertions, for backends",
    tags=["operations"],
    responses=problems(),
)
