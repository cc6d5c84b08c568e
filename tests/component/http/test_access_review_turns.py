"""Access reviews that wait for their turn: a bound, the policy of that moment, and the power asked for again."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Semaphore
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib.access.answers import WhatCan
from toolcrib.access.review import AccessReview
from toolcrib_registry.http.routes import access_review

TOOLS = [tool("calculator"), tool("secret_plan")]
GRANTS = [binding("bot"), binding("admin", ["registry:admin"], namespace=None)]


class Held:
    """Reviews of what a subject sees, held in their threads until `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: Semaphore = Semaphore(0)
        self.go_on = threading.Event()
        self.turns: list[access_review._Turns] = []
        real, turns = AccessReview.what_can, access_review._Turns

        def slow(review: AccessReview, *arguments: Any, **options: Any) -> WhatCan:
            self.begun.release()
            assert self.go_on.wait(30)
            return real(review, *arguments, **options)

        def kept() -> access_review._Turns:
            self.turns.append(turns())
            return self.turns[-1]

        monkeypatch.setattr(AccessReview, "what_can", slow)
        monkeypatch.setattr(access_review, "_Turns", kept)

    @property
    def there(self) -> int:
        """Reviews that are in work or wait."""
        return sum(turns._there for turns in self.turns)

    @contextlib.contextmanager
    def asked(self, r: RunningRegistry, count: int) -> Iterator[list[Future[httpx.Response]]]:
        """`count` questions under way, the first `AT_ONCE` of them in work; let go at the end."""
        headers = r.auth("team", "admin")
        url = r.url + "/v1/access-review?subject=team/bot&hidden=true"
        with ThreadPoolExecutor(count) as pool:
            try:
                found = [pool.submit(r.http.get, url, headers=headers, timeout=30) for _ in range(count)]
                for _ in range(min(count, access_review.AT_ONCE)):
                    assert self.begun.acquire(timeout=30)
                room = access_review.AT_ONCE + access_review.WAITING
                wait_until(lambda: self.there == min(count, room))
                yield found
            finally:
                self.go_on.set()


def test_discovery_goes_on_while_two_reviews_are_worked_out_and_the_rest_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    with running_registry(TOOLS, GRANTS) as r:
        with held.asked(r, 4) as reviews:
            for _ in range(3):
                assert r.http.get(r.url, headers=r.auth("team", "bot"), timeout=30).status_code == 200
            assert not any(review.done() for review in reviews)
            assert not held.begun.acquire(blocking=False), "two at one time"
        assert [review.result().status_code for review in reviews] == [200] * 4


def test_a_caller_that_loses_the_power_gets_no_answer_that_is_worked_out_or_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    with running_registry(TOOLS, GRANTS) as r:
        with held.asked(r, 4) as reviews:
            r.publish(remove_bindings=["uid-None-admin"])
        answers = [review.result() for review in reviews]
        worked = access_review.AT_ONCE + sum(held.begun.acquire(blocking=False) for _ in range(4))

    assert {(a.status_code, a.json()["code"]) for a in answers} == {(403, "not_permitted")}
    assert worked == access_review.AT_ONCE, "for those who waited nothing is worked out"


def test_a_review_that_waits_is_answered_by_the_policy_in_effect_at_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    with running_registry(TOOLS, GRANTS) as r:
        with held.asked(r, 4) as reviews:
            r.publish(remove_bindings=["uid-team-bot"])
        found = sorted(WhatCan.model_validate(x.result().json()).visible for x in reviews)

    assert found == [0, 0, 1, 1]


def test_whose_turn_comes_when_the_policy_is_too_old_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    held, clock = Held(monkeypatch), ManualClock()
    with running_registry(TOOLS, GRANTS, clock=clock, policy_max_age=60) as r:
        with held.asked(r, 4) as reviews:
            clock.advance(61)
        codes = sorted(str(review.result().json().get("code")) for review in reviews)

    assert codes == ["None", "None", "policy_stale", "policy_stale"]


def test_a_caller_that_loses_the_power_does_not_learn_which_tools_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = access_review._answer

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return real(*arguments)

    monkeypatch.setattr(access_review, "_answer", slow)
    with running_registry(TOOLS, GRANTS) as r, ThreadPoolExecutor(1) as pool:
        url = r.url + "/v1/access-review?tool=team/secret_plans"
        asked = pool.submit(r.http.get, url, headers=r.auth("team", "admin"), timeout=30)
        try:
            assert begun.wait(30)
            r.publish(remove_bindings=["uid-None-admin"])
        finally:
            go_on.set()
        answer = asked.result()

    assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
    assert "secret_plan" not in answer.text


def test_no_more_reviews_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_review, "WAITING", 2)
    held = Held(monkeypatch)
    with running_registry(TOOLS, GRANTS) as r:
        with held.asked(r, 5) as reviews:
            (refused,) = wait(reviews, timeout=30, return_when=FIRST_COMPLETED).done
            answer = refused.result()
        statuses = sorted(review.result().status_code for review in reviews)
        assert held.there == 0
        url = r.url + "/v1/access-review?subject=team/bot"
        assert r.http.get(url, headers=r.auth("team", "admin")).status_code == 200

    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.headers["Retry-After"] == "5"
    assert statuses == [200] * 4 + [503]
