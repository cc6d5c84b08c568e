"""The log's keyed hashes are HMAC-SHA256, as the standard library makes it."""

import hmac

import pytest

from toolcrib.audit.chain import AuditKey

pytestmark = pytest.mark.guarantee


def test_keyed_hashes_are_those_of_the_standard_library() -> None:
    secret = b"s" * 40
    key = AuditKey.of(secret)
    chain = hmac.digest(secret, b"toolcrib audit chain", "sha256")
    arguments = hmac.digest(secret, b"toolcrib audit arguments", "sha256")

    for size in (0, 1, 55, 56, 63, 64, 65, 2_047, 100_000):
        body = bytes(n % 251 for n in range(size))
        assert key.hash(body) == hmac.digest(chain, body, "sha256").hex()
        assert key.arguments(body) == f"hmac-sha256:{hmac.digest(arguments, body, 'sha256').hex()}"
