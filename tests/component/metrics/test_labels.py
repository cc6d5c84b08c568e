"""Who and what has series of its own in the registry's metrics, what counts as `other`, and what is charged to whom."""

import math
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from registry_harness import (
    ISSUER,
    ManualClock,
    RunningRegistry,
    binding,
    keyset,
    mint,
    running_registry,
    tool,
)
from toolcrib.authorizer import Decision, Policy, Reason
from toolcrib.identity import Identity, Issuer, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedSubject, PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.metrics.series import FORGET_AFTER, OTHER, Budget

Sample = tuple[str, dict[str, str], float]
MANY = 10_000


class Answers:
    """A backend that answers everything at once."""

    async def call(
        self, tool: PublishedTool, arguments: CheckedArguments, request_id: str, caller: Identity, *_: object
    ) -> ToolAnswer:
        return ToolAnswer(b'"done"', "application/json", is_json=True, elapsed=0.001)


def scraped(r: RunningRegistry) -> list[Sample]:
    """The samples of the real /metrics, read with Prometheus' own parser."""
    text = r.metrics()
    return [(s.name, s.labels, s.value) for f in text_string_to_metric_families(text) for s in f.samples]


def of(samples: list[Sample], name: str, **labels: str) -> list[Sample]:
    return [s for s in samples if s[0] == name and labels.items() <= s[1].items()]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    return math.fsum(value for _, _, value in of(samples, name, **labels))


def identity(number: int, issuer: str = ISSUER) -> Identity:
    return Identity(
        issuer=issuer,
        subject=f"system:serviceaccount:team:agent-{number}",
        policy=ScopesPolicy.BINDINGS,
        expires_at=time.time() + 3600,
        cluster=True,
        groups=frozenset({"system:serviceaccounts", "system:serviceaccounts:team"}),
    )


def bound_to(*subjects: PublishedSubject) -> Snapshot:
    """A snapshot with one binding, of these."""
    one = binding("x").model_copy(update={"subjects": subjects})
    return Snapshot(policy=Policy.compile([one]))


def counted(numbers: CollectorRegistry, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Labels → count, of one counter."""
    families = [f for f in numbers.collect() if f.name == name]
    return {
        tuple(sorted(s.labels.items())): s.value
        for f in families
        for s in f.samples
        if s.name.endswith("_total")
    }


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    everyone = binding("unused", ["s"], name="everyone").model_copy(
        update={
            "subjects": (
                PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts:team"),
            )
        }
    )
    limits = {"metric_agents": 100, "metric_tools": 300, "metric_pairs": 1000}
    with running_registry([tool("calculator", scopes=("s",))], [everyone], limits=limits) as r:
        yield r


def test_a_token_without_a_binding_counts_as_other_and_one_with_a_binding_as_itself() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        for i in range(40):
            assert r.http.get(r.url, headers=r.auth("elsewhere", f"made-up-{i}")).status_code == 200
        for _ in range(3):
            r.http.get(r.url, headers=r.auth("team", "bot"))
        r.http.get(r.url)
        samples = scraped(r)

    found = {s[1]["agent"]: s[2] for s in of(samples, "toolcrib_discoveries_total")}
    assert found == {"other": 40, "team/bot": 3, "anonymous": 1}
    assert total(samples, "toolcrib_metrics_folded_total", label="agent") == 40


@pytest.mark.slow
def test_ten_thousand_agents_and_tools_make_a_bounded_number_of_series_and_lose_no_observation(
    registry: RunningRegistry,
) -> None:
    metrics = registry.registry.deps.metrics
    template = tool("calculator", server="maths")
    tools = [
        template.model_copy(update={"tool_id": f"team/tool-{i}", "server": f"s{i % 300}"})
        for i in range(MANY)
    ]
    bindings = [binding("x", name=f"rule-{i}") for i in range(MANY)]
    denied = [Decision(False, Reason.DENIED, b) for b in bindings]
    calls = 30_000

    async def load() -> None:
        for i in range(calls):
            who = identity(i % MANY)
            metrics.discovered(who, "/")
            metrics.called(who, tools[i * 7 % MANY], "ok", 0.01)
            metrics.decided("call", denied[i * 13 % MANY], who)
            metrics.grants.charged(bindings[i % MANY], tools[i * 7 % MANY])

    before = scraped(registry)
    registry.on_loop(load)
    began = time.monotonic()
    samples = scraped(registry)
    took = time.monotonic() - began

    for name, per_call in (
        ("toolcrib_discoveries_total", 1),
        ("toolcrib_calls_total", 1),
        ("toolcrib_call_duration_seconds_count", 1),
        ("toolcrib_denials_total", 1),
        ("toolcrib_grant_uses_total", 1),
    ):
        assert total(samples, name) - total(before, name) == calls * per_call, name
    assert len({s[1]["agent"] for s in of(samples, "toolcrib_discoveries_total")}) == 101
    assert len({s[1]["tool"] for s in of(samples, "toolcrib_call_duration_seconds_count")}) == 201
    assert len(of(samples, "toolcrib_calls_total")) <= 1000 + 101 + 301
    assert len(of(samples, "toolcrib_denials_total")) <= 1000 + 101 + 2001
    assert len(of(samples, "toolcrib_grant_uses_total")) == 2001
    assert len(of(samples, "toolcrib_grant_tool_last_used_timestamp_seconds")) <= 1000
    assert total(samples, "toolcrib_calls_total", agent=OTHER) > calls * 0.9
    for label in ("agent", "tool", "server", "grant"):
        assert total(samples, "toolcrib_metrics_folded_total", label=label) > calls * 0.5, label
    assert len(samples) < 25_000
    assert took < 15


def test_tools_beyond_the_budget_that_share_servers_with_others_make_no_series_by_server() -> None:
    numbers = CollectorRegistry()
    everyone = bound_to(
        PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts")
    )
    metrics = Metrics(numbers, agents=50, tools=100, pairs=100, snapshot=lambda: everyone)
    template = tool("calculator", server="maths")
    tools = [
        template.model_copy(update={"tool_id": f"team/tool-{i}", "server": f"s{i % 100}"}) for i in range(200)
    ]

    for one in tools:
        for i in range(50):
            metrics.called(identity(i), one, "ok", 0.01)

    calls = counted(numbers, "toolcrib_calls")
    assert sum(calls.values()) == 200 * 50
    assert len(calls) <= 100 + 50
    assert {k["server"] for k in map(dict, calls) if k["tool"] == OTHER} == {OTHER}


def test_combinations_of_agents_and_rules_of_denials_are_bounded() -> None:
    numbers = CollectorRegistry()
    everyone = bound_to(
        PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts")
    )
    metrics = Metrics(numbers, agents=40, grants=40, pairs=100, snapshot=lambda: everyone)
    denied = [Decision(False, Reason.DENIED, binding("x", name=f"rule-{i}")) for i in range(40)]

    for one in denied:
        for i in range(40):
            metrics.decided("call", one, identity(i))

    denials = counted(numbers, "toolcrib_denials")
    assert sum(denials.values()) == 40 * 40
    apart = [k for k in map(dict, denials) if k["rule"] != OTHER]
    assert len(apart) == 100
    assert len(denials) <= 100 + 40
    folded = counted(numbers, "toolcrib_metrics_folded")
    assert folded[(("label", "grant"),)] == 40 * 40 - 100


def test_one_label_belongs_to_one_agent_of_one_issuer() -> None:
    def of_client(name: str, issuer: str = "https://one") -> Identity:
        return Identity(issuer=issuer, subject=name, client=name, expires_at=time.time() + 3600)

    def subject(name: str, issuer: str = "https://one") -> PublishedSubject:
        return PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=issuer, client_id=name)

    long = "x" * 300
    names = ("team/agent-1", "anonymous", "other", long + "1", long + "2")
    bound = bound_to(
        *map(subject, names),
        subject("team/agent-1", "https://two"),
        PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team", name="agent-1"),
    )
    metrics = Metrics(CollectorRegistry(), snapshot=lambda: bound)

    labels = [metrics.agent(of_client(name)) for name in names]
    labels += [metrics.agent(of_client("team/agent-1", "https://two")), metrics.agent(identity(1))]
    assert labels[:3] == ["https://one:team/agent-1", "https://one:anonymous", "https://one:other"]
    assert labels[5:] == ["https://two:team/agent-1", "team/agent-1"]
    assert len(set(labels)) == len(labels)
    assert {len(label) for label in labels[3:5]} == {256}
    assert metrics.agent(of_client("team/agent-1", "https://nobody-bound")) == OTHER
    assert metrics.agent(None) == "anonymous"
    assert [metrics.agent(of_client(name)) for name in names] == labels[:5]


def test_a_client_named_like_a_service_account_shares_no_series_with_it() -> None:
    login = "https://login.test"
    issuers = (
        Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
        Issuer(issuer=login, audience=("toolcrib",), algorithms=("ES256",), scopes=ScopesPolicy.BINDINGS),
    )
    client = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=login, client_id="team/bot")
    grants = [binding("bot"), binding("client", subjects=(client,))]
    keys = {login: keyset()[ISSUER]}
    with running_registry([tool("calculator")], grants, issuers=issuers, extra_keys=keys) as r:
        token = mint("team/bot", iss=login, client_id="team/bot")
        for headers in (r.auth("team", "bot"), {"Authorization": f"Bearer {token}"}):
            assert r.http.get(r.url, headers=headers).json()["total_available"] == 1
        samples = scraped(r)

    found = {s[1]["agent"]: s[2] for s in of(samples, "toolcrib_discoveries_total")}
    assert found == {"team/bot": 1, "https://login.test:team/bot": 1}


def test_what_is_gone_gives_its_place_and_its_series_back_after_a_while() -> None:
    clock = ManualClock()
    limits = {"metric_agents": 1, "metric_tools": 1, "metric_grants": 1}
    tools, grants = [tool("calculator"), tool("reader")], [binding("bot"), binding("cat", ["reader:use"])]
    with running_registry(tools, grants, clock=clock, backend=Answers(), limits=limits) as r:

        def use(name: str, what: str) -> set[str]:
            r.heartbeat()
            headers = r.auth("team", name)
            assert r.http.post(f"{r.url}/tools/{what}", headers=headers, json={}).status_code == 200
            samples = scraped(r)
            labels = [s[1] for s in of(samples, "toolcrib_calls_total")]
            labels += [s[1] for s in of(samples, "toolcrib_grant_uses_total")]
            return {v for one in labels for k, v in one.items() if k in ("agent", "tool", "grant")}

        assert use("bot", "calculator") == {"team/bot", "team/calculator"}
        assert use("cat", "reader") == {"team/bot", "team/calculator", OTHER}
        r.publish(remove_tools=["team/calculator"], remove_bindings=[grants[0].uid])
        scraped(r)
        clock.advance(FORGET_AFTER - 1)
        assert use("cat", "reader") == {"team/bot", "team/calculator", OTHER}
        clock.advance(2)
        scraped(r)
        assert use("cat", "reader") == {"team/cat", "team/reader", OTHER}


def test_a_value_that_comes_back_in_time_keeps_its_place() -> None:
    budget = Budget(1)
    assert budget("a") == "a"
    assert budget.sweep(lambda value: False, now=0.0) == set()
    assert budget.sweep(lambda value: True, now=200.0) == set()
    assert budget.sweep(lambda value: False, now=400.0) == set()
    assert budget("b") == OTHER
    assert budget.sweep(lambda value: False, now=400.0 + FORGET_AFTER) == {"a"}
    assert budget("b") == "b"


@pytest.mark.parametrize("reasons", ["not_permitted", "full"])
def test_a_permitted_call_is_charged_to_the_binding_that_decided_and_a_refused_one_to_its_rule_if_told(
    reasons: str,
) -> None:
    clock = ManualClock()
    grants = [
        binding("bot"),
        binding("bot", ["reader:use"], namespace=None, name="readers"),
        binding("bot", ["writer:use"], name="no-writing", deny=("writer",)),
    ]
    tools = [tool("calculator"), tool("reader"), tool("writer"), tool("hidden")]
    with running_registry(tools, grants, clock=clock, backend=Answers(), metrics={"reasons": reasons}) as r:
        r.heartbeat()
        headers = r.auth("team", "bot")
        for name, status in (("calculator", 200), ("reader", 200), ("writer", 403), ("hidden", 403)):
            assert r.http.post(f"{r.url}/tools/{name}", headers=headers, json={}).status_code == status
        assert r.http.post(f"{r.url}/tools/nothing", headers=headers, json={}).status_code == 403
        first = clock.now()
        clock.advance(10)
        r.http.post(f"{r.url}/tools/reader", headers=headers, json={})
        samples = scraped(r)

    uses = {(s[1]["kind"], s[1]["grant"]): s[2] for s in of(samples, "toolcrib_grant_uses_total")}
    assert uses == {("AgentScopeBinding", "team/bot"): 1, ("ClusterAgentScopeBinding", "readers"): 2}
    used = "toolcrib_grant_last_used_timestamp_seconds"
    assert total(samples, used, grant="team/bot") == pytest.approx(first)
    assert total(samples, used, grant="readers") == pytest.approx(first + 10)
    tools = {
        (s[1]["grant"], s[1]["tool"]): s[2]
        for s in of(samples, "toolcrib_grant_tool_last_used_timestamp_seconds")
    }
    assert tools == {
        ("team/bot", "team/calculator"): pytest.approx(first),
        ("readers", "team/reader"): pytest.approx(first + 10),
    }
    denials = {(s[1]["reason"], s[1]["rule"]): s[2] for s in of(samples, "toolcrib_denials_total")}
    full = {
        ("denied", "AgentScopeBinding/team/no-writing"): 1,
        ("scope_not_granted", "ClusterAgentScopeBinding/readers"): 1,
        ("unknown_tool", ""): 1,
    }
    assert denials == (full if reasons == "full" else {("not_permitted", ""): 3})
    decided = {s[1]["reason"]: s[2] for s in of(samples, "toolcrib_decisions_total", allowed="false")}
    assert decided == ({why: 1 for why, _ in full} if reasons == "full" else {"not_permitted": 3})
    assert {s[1]["agent"] for s in of(samples, "toolcrib_denials_total")} == {"team/bot"}
    assert total(samples, "toolcrib_snapshot_bindings") == 3


def test_a_call_that_a_stale_policy_refuses_is_charged_to_nobody() -> None:
    with running_registry([tool("calculator")], [binding("bot")], policy_max_age=0.001) as r:
        answer = r.http.post(r.url + "/tools/calculator", headers=r.auth("team", "bot"), json={})
        samples = scraped(r)

    assert answer.status_code == 503
    assert of(samples, "toolcrib_grant_uses_total") == []
    assert total(samples, "toolcrib_calls_total", outcome="policy_stale") == 1
