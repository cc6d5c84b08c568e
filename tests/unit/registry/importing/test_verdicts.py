"""What is said of a server that brought no list."""

import pytest

from toolcrib.wire.imports import ServerOutcome
from toolcrib_cli.local.hosts import LocalRemedies
from toolcrib_registry.calls import errors as calls
from toolcrib_registry.calls.backends.routes import NONE, Authentication
from toolcrib_registry.importing import verdicts
from toolcrib_registry.outbound import errors as outbound
from toolcrib_registry.outbound.guard import EgressPolicy, EgressRule, Target, check_url
from toolcrib_registry.upstream import errors as upstream
from toolcrib_registry.upstream.lists import Cut

SECRET = Authentication({"authorization": "Bearer s3cr3t-token"}, ("s3cr3t-token",))

CASES = [
    (outbound.NoAddress("a", "b", 8080), NONE, ServerOutcome.NO_ADDRESS),
    (outbound.HostNotAllowed("files.example", 443), NONE, ServerOutcome.EGRESS_REFUSED),
    (outbound.Unreachable("refused"), NONE, ServerOutcome.UNREACHABLE),
    (outbound.Disconnected("died"), NONE, ServerOutcome.UNREACHABLE),
    (outbound.TimedOut("no complete response within 5 s"), NONE, ServerOutcome.UNREACHABLE),
    (outbound.TooLarge("larger"), NONE, ServerOutcome.TOO_LARGE),
    (outbound.ProtocolViolation("odd"), NONE, ServerOutcome.PROTOCOL_ERROR),
    (calls.CredentialPending("the Tool"), NONE, ServerOutcome.CREDENTIAL_PENDING),
    (calls.Refused("the host is not listed"), NONE, ServerOutcome.CREDENTIAL_REFUSED),
    (upstream.TransportUnsupported(), NONE, ServerOutcome.TRANSPORT_UNSUPPORTED),
    (upstream.LoginRequired("https://a.example/x"), NONE, ServerOutcome.LOGIN_REQUIRED),
    (upstream.LoginRequired("https://a.example/x"), SECRET, ServerOutcome.AUTHENTICATION_FAILED),
    (upstream.LoginRequired(None), NONE, ServerOutcome.AUTHENTICATION_FAILED),
    (upstream.RefusedByStatus(403), NONE, ServerOutcome.AUTHENTICATION_FAILED),
    (upstream.RefusedByStatus(429, 7), NONE, ServerOutcome.RATE_LIMITED),
    (upstream.RefusedByStatus(502), NONE, ServerOutcome.SERVER_ERROR),
    (upstream.RefusedByStatus(418), NONE, ServerOutcome.PROTOCOL_ERROR),
    (upstream.RefusedByStatus(302), NONE, ServerOutcome.PROTOCOL_ERROR),
    (upstream.RefusedByRpc(-32601, "their words"), NONE, ServerOutcome.PROTOCOL_ERROR),
    (upstream.RefusedByRpc(-32603, "their words"), NONE, ServerOutcome.SERVER_ERROR),
    (upstream.RefusedByRpc(-1, "their words"), NONE, ServerOutcome.PROTOCOL_ERROR),
    (upstream.AnswerBroken("the server's answer is not JSON"), NONE, ServerOutcome.PROTOCOL_ERROR),
]


@pytest.mark.parametrize(("failure", "credential", "outcome"), CASES)
def test_each_failure_has_its_outcome_and_one_sentence_of_our_own(
    failure: Exception, credential: Authentication, outcome: ServerOutcome
) -> None:
    verdict = verdicts.of_failure(failure, credential)  # type: ignore[arg-type]

    assert verdict.outcome is outcome
    assert verdict.detail[0].isupper()
    assert verdict.detail.endswith(".")
    assert not verdict.detail.endswith("..")
    assert "their words" not in verdict.detail


@pytest.mark.parametrize(
    ("failure", "cluster", "laptop"),
    [
        (
            outbound.HostNotAllowed("files.example", 8443),
            "add files.example to `egress.allow`",
            "--allow-host files.example:8443",
        ),
        (outbound.NoAddress("a", "b", 8080), "--backend a/b=host:port", "`a/b: host:port` to `backends`"),
    ],
)
def test_a_place_that_the_guard_refuses_is_told_as_it_is_and_with_what_to_do(
    failure: outbound.OutboundError, cluster: str, laptop: str
) -> None:
    assert cluster in verdicts.of_failure(failure, NONE).detail
    detail = verdicts.of_failure(failure, NONE, LocalRemedies()).detail

    assert laptop in detail
    assert "Files.example" not in detail


SERVICE = Target("http", "peer.heist.svc", 8080, "/mcp", EgressRule.SERVICE, frozenset(), address="10.0.0.7")
PUBLIC = check_url("https://mcp.example/v1/mcp?key=s3cr3t", EgressPolicy(allow=("mcp.example",)))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (PUBLIC, " Asked: https://mcp.example/v1/mcp."),
        (SERVICE, " Asked: http://10.0.0.7:8080/mcp (peer.heist.svc)."),
    ],
)
@pytest.mark.parametrize(
    "failure", [outbound.Unreachable("refused"), upstream.RefusedByStatus(404), upstream.RefusedByStatus(500)]
)
def test_an_address_that_may_be_wrong_is_told_without_its_query(
    place: Target, said: str, failure: outbound.OutboundError | upstream.McpFailure
) -> None:
    assert verdicts.of_failure(failure, NONE, asked=place).detail.endswith(said)
    assert "Asked" not in verdicts.of_failure(upstream.RefusedByStatus(429), NONE, asked=place).detail


def test_the_time_that_a_server_names_is_kept() -> None:
    assert verdicts.of_failure(upstream.RefusedByStatus(429, 7), NONE).retry_after == 7
    assert verdicts.of_failure(upstream.RefusedByStatus(503, 9), NONE).retry_after == 9


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://a.example/ x", "https://a.example/?t=s3cr3t-token", "ftp://a"]
)
def test_a_metadata_url_that_is_none_or_repeats_the_credential_is_not_told(url: str) -> None:
    assert verdicts.of_failure(upstream.LoginRequired(url), SECRET).metadata_url is None


@pytest.mark.parametrize("cut", list(Cut))
def test_a_list_that_was_not_read_to_its_end_is_none(cut: Cut) -> None:
    verdict = verdicts.of_cut(cut, 100, 16 << 20)
    assert verdict.outcome in (ServerOutcome.TOO_LARGE, ServerOutcome.PROTOCOL_ERROR)


def test_a_long_message_is_cut() -> None:
    assert len(verdicts.of_failure(outbound.EgressRefused("x" * 1_000), NONE).detail) <= 300
