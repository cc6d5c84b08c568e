"""Service-account tokens of a real API server, verified through the keys it publishes."""

import time
from pathlib import Path

import pytest

from realparts.apiserver import ApiServer
from toolcrib.errors import TokenRejected
from toolcrib.identity import Issuer, ScopesPolicy, check_issuers, verify
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def test_a_real_service_account_token_verifies_with_keys_fetched_as_a_service_account(
    apiserver: ApiServer, namespace: str, tmp_path: Path
) -> None:
    assert apiserver.kubectl("create", "serviceaccount", "planner", "-n", namespace).returncode == 0
    own = apiserver.token_request(namespace, "planner", [apiserver.issuer], seconds=600)
    (tmp_path / "token").write_text(own)
    issuer = Issuer(
        issuer=apiserver.issuer,
        audience=("toolcrib",),
        jwks_uri=apiserver.jwks_url,
        ca_file=str(apiserver.ca_file),
        token_file=str(tmp_path / "token"),
        scopes=ScopesPolicy.BINDINGS,
        cluster=True,
    )
    async with OutboundHttp(EgressPolicy()) as outbound:
        keys = KeyStore([issuer], outbound)
        await keys.start()
        await keys.close()
    trusted = check_issuers([issuer])

    token = apiserver.token_request(namespace, "planner", ["toolcrib"], seconds=600)
    identity = verify(token, issuers=trusted, keys=keys.keys, now=time.time())

    assert identity.service_account == (namespace, "planner")
    with pytest.raises(TokenRejected, match="audience"):
        verify(own, issuers=trusted, keys=keys.keys, now=time.time())
