"""What services raise, which know no HTTP, as problem documents: status, headers and members by its code."""

import json
from typing import Any

import pytest

from toolcrib_registry.calls.errors import CallError, Refused, UpstreamTimeout
from toolcrib_registry.failures import Failure, Unauthenticated
from toolcrib_registry.http.problems import CODES, problem_of
from toolcrib_registry.next_steps import NEXT_STEPS


def answered(error: Failure) -> tuple[int, dict[str, str], dict[str, Any]]:
    response = problem_of(error).response()
    return response.status_code, dict(response.headers), json.loads(bytes(response.body))


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_failure_has_the_status_and_the_title_of_its_code(code: str) -> None:
    status, _headers, body = answered(Failure(code, "Why."))

    assert (status, body["status"], body["title"]) == (CODES[code][0], *CODES[code])
    assert (body["code"], body["detail"]) == (code, "Why.")


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_problem_says_what_to_do_next(code: str) -> None:
    assert answered(Failure(code, "Why."))[2]["hint"] == NEXT_STEPS[code]
    assert NEXT_STEPS[code].endswith(".")


def test_no_step_is_told_for_a_code_that_there_is_not() -> None:
    assert NEXT_STEPS.keys() == CODES.keys()


def test_when_to_try_again_is_a_header_and_further_members_stand_in_the_body() -> None:
    error = Failure("limit_exceeded", "Wait.", retry_after=7, extra={"limit": "per_minute"})

    _status, headers, body = answered(error)

    assert headers["retry-after"] == "7"
    assert body["limit"] == "per_minute"
    assert "retry-after" not in answered(Failure("limit_exceeded", "Wait."))[1]


def test_a_call_that_failed_at_its_backend_has_the_status_of_its_code() -> None:
    status, _headers, body = answered(UpstreamTimeout("It took 30 s."))

    assert (status, body["code"], body["detail"]) == (504, "upstream_timeout", "It took 30 s.")
    assert {kind.code for kind in CallError.__subclasses__()} <= CODES.keys()


def test_an_address_that_may_not_be_called_is_the_callers_fault_only_at_a_registration() -> None:
    assert answered(Failure("egress_refused", "No."))[0] == 400
    assert answered(Refused("No."))[0] == 502


def test_who_sends_no_token_is_told_to_and_whose_token_is_bad_why() -> None:
    status, headers, body = answered(Unauthenticated(None))
    assert (status, body["code"]) == (401, "unauthenticated")
    assert headers["www-authenticate"] == 'Bearer realm="toolcrib"'

    status, headers, body = answered(Unauthenticated("it has expired"))
    assert (status, body["code"]) == (401, "invalid_token")
    assert "it has expired" in body["detail"]
    assert headers["www-authenticate"] == (
        'Bearer realm="toolcrib", error="invalid_token", error_description="it has expired"'
    )
