"""`validate` of files says what the operator's conditions say of the same objects: same reasons, same words, with the line."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_stage import staged
from toolcrib_cli import main as cli
from toolcrib_cli import manifests
from toolcrib_cli.places import Places
from toolcrib_cli.prediction.validation import alone
from toolcrib_cli.remarks import Remark, remarks
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.statuses import Status, condition, holds
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.settings import LoopSettings
from waiting import until

pytestmark = pytest.mark.anyio

LOCAL = LoopSettings(hold_back=0.1, finalizers=False, services=False, accounts=False)
ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "planner", "namespace": "heist"},
}
CALCULATOR = tool("calculator", backend={"none": {}})
KEY = {"type": "Bearer", "secretKeyRef": {"name": "vault", "key": "token"}}
LABEL = {"toolcrib.dev/backend-credential": "true"}


def secret(**labels: str) -> dict[str, Any]:
    metadata = {"name": "vault", "namespace": "heist", "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": "s3cr3t"}}


def guarded() -> dict[str, Any]:
    return tool("vault", backend={"http": {"url": "https://vault.example/open"}, "auth": KEY})


def old(**spec: Any) -> dict[str, Any]:
    return binding("old", ["calculatr:use"], expiresAt="2020-01-01T00:00:00Z", **spec)


CASES = {
    "a name that an older Tool has": ((CALCULATOR, tool("pocket", name="calculator", backend={"none": {}})), "Tool heist/pocket"),
    "a label that is not trusted": (
        (CALCULATOR, ACCOUNT, cluster_binding("planner", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}})),
        "ClusterAgentScopeBinding planner",
    ),
    "an expired binding with typos": (
        (CALCULATOR, ACCOUNT, old(subjects=[{"kind": "ServiceAccount", "name": "plannner"}])),
        "AgentScopeBinding heist/old",
    ),
    "a Secret that is missing": ((guarded(),), "Tool heist/vault"),
    "a Secret that may not be sent": ((guarded(), secret(**LABEL)), "Tool heist/vault"),
    "a deny that matches nothing": (
        (CALCULATOR, ACCOUNT, binding("planner", ["calculator:use"], tools={"allow": ["calc*"], "deny": ["delete_*"]})),
        "AgentScopeBinding heist/planner",
    ),
    "words that say nothing": ((tool("run", description="", backend={"none": {}}),), "Tool heist/run"),
}  # fmt: skip


def read(tmp_path: Path, *objects: dict[str, Any]) -> list[manifests.FileContent]:
    file = tmp_path / "objects.yaml"
    # each key on a line of its own, so that each field has one
    file.write_text("\n---\n".join(json.dumps(each, indent=1) for each in objects))
    return [manifests.read(file)]


def said(tmp_path: Path, *objects: dict[str, Any]) -> list[Remark]:
    return alone(read(tmp_path, *objects), now=time.time())


def words(remark: Remark) -> str:
    """The message without the reason before it, with its field."""
    return f"{remark.finding.field}: {remark.finding.message.partition(': ')[2]}"


def settled(entry: Entry | None) -> Status:
    """The status, once it tells of nothing that only waits; until then nothing."""
    ready = condition(entry.status, "Ready") if entry is not None else None
    waits = {"NotPublished", "NotIndexed", "NotPropagated", "NoReplicas"}
    return entry.status if entry is not None and ready is not None and ready["reason"] not in waits else {}


@pytest.mark.parametrize("case", CASES)
async def test_what_is_said_of_files_is_what_the_conditions_say(tmp_path: Path, case: str) -> None:
    objects, named = CASES[case]
    found = [r for r in said(tmp_path, *objects) if r.item.named == named]
    ref = Ref(*named.split())  # type: ignore[arg-type]
    born = [f"2026-01-01T00:00:{i:02}Z" for i in range(len(objects))]
    there = [
        {**o, "metadata": {**o["metadata"], "creationTimestamp": at}}
        for o, at in zip(objects, born, strict=True)
    ]
    async with staged(*there, settings=LOCAL) as stage:
        for each in there:
            if each["kind"] == "Secret":
                stage.world.upsert("Secret", each)
        status = await until(lambda: settled(stage.world.get(ref)))
    accepted, ready, odd = (condition(status, kind) or {} for kind in ("Accepted", "Ready", "Questionable"))

    bad = accepted if accepted["status"] == "False" else ready
    assert [(r.used, r.reason) for r in found if not r.used or not r.ready] == [
        (accepted["status"] == "True", bad["reason"]) for _ in [bad] if bad["status"] == "False"
    ]
    for remark in found:
        if not remark.used or not remark.ready:
            assert words(remark).endswith(bad["message"])
    nothing = [r for r in found if r.reason == "MatchesNothing"]
    assert bool(nothing) == holds(status, "MatchesNothing")
    oddities = [r for r in found if r.used and r.ready and r not in nothing]
    assert bool(oddities) == (odd["status"] == "True")
    if oddities:
        assert oddities[0].reason == odd["reason"]
        assert "; ".join(map(words, oddities)) == odd["message"]
    assert found, "each case says something"


def test_each_remark_has_the_line_of_its_field(tmp_path: Path) -> None:
    objects, _ = CASES["an expired binding with typos"]
    contents, places = read(tmp_path, *objects), Places()
    lines = contents[0].file.read_text().splitlines()
    at = {r.reason: lines[r.problem(places).line - 1].strip() for r in alone(contents, now=time.time())}
    assert at == {
        "Expired": '"expiresAt": "2020-01-01T00:00:00Z"',
        "ExpiredAtApply": '"expiresAt": "2020-01-01T00:00:00Z"',
        "MatchesNothing": '"spec": {',
        "SubjectNotFound": "{",
    }


NAMED = "secretKeyRef: {name: vault, key: token}"


@pytest.mark.parametrize(
    ("mcp", "reason", "field", "line"),
    [
        (f"url: https://a.example/mcp\n    auth: {{type: Bearer, {NAMED}}}", "CredentialMissing", "auth.secretKeyRef", 7),
        (f"command: [files]\n    env:\n      - {{name: KEY, {NAMED}}}", "CredentialMissing", "env", 7),
        ("path: /mcp\n    service: {name: files, port: 8080}", "ServiceMissing", "service", 7),
    ],
)  # fmt: skip
def test_what_a_server_lacks_has_the_field_and_the_line_where_the_server_names_it(
    tmp_path: Path, mcp: str, reason: str, field: str, line: int
) -> None:
    file = tmp_path / "server.yaml"
    head = "apiVersion: toolcrib.dev/v1alpha1\nkind: ToolServer\nmetadata: {name: files, namespace: heist}"
    file.write_text(f"{head}\nspec:\n  mcp:\n    {mcp}\n  defaults: {{scopes: ['files:use']}}\n")
    item = manifests.read(file).objects[0]
    not_ready = {"type": "Ready", "status": "False", "reason": reason, "message": "It is missing."}

    [remark] = remarks(item, Told({"conditions": [not_ready]}))

    assert remark.finding.field == f"spec.mcp.{field}"
    assert remark.problem(Places()).line == line


@pytest.mark.parametrize(
    ("case", "code", "strict", "verdict"),
    [
        ("a name that an older Tool has", 1, 1, "1 problem(s)"),
        ("a label that is not trusted", 1, 1, "1 problem(s)"),
        ("an expired binding with typos", 0, 1, "none refused, 1 not ready, 4 warning(s)"),
        ("a Secret that is missing", 0, 1, "none refused, 1 not ready, 1 warning(s)"),
    ],
)
def test_what_is_not_accepted_fails_and_what_is_not_ready_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, code: int, strict: int, verdict: str
) -> None:
    file = read(tmp_path, *CASES[case][0])[0].file
    for flags, expected in (((), code), (("--strict",), strict)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["validate", str(file), *flags])
        assert ended.value.code == expected
        assert capsys.readouterr().out.splitlines()[-1].endswith(f" object(s) in 1 file(s): {verdict}")
    with pytest.raises(SystemExit):
        cli.main(["validate", str(file), "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    found = [*told["problems"], *told["warnings"]]
    assert {(w["object"], w["ready"]) for w in found if not w["ready"]} == {(CASES[case][1], False)}


def test_what_only_a_cluster_can_know_is_left_out(tmp_path: Path) -> None:
    elsewhere = tool("other", "bank", backend={"none": {}})
    grant = binding("planner", ["calculator:use"], tools={"deny": ["delete_*"]})
    assert said(tmp_path, grant, elsewhere) == [], "no Tool and no ServiceAccount of this namespace is given"
    other = ACCOUNT | {"metadata": {"name": "hacker", "namespace": "heist"}}
    assert [r.reason for r in said(tmp_path, grant, other, tool("vault", backend={"none": {}}))] == [
        "MatchesNothing", "SubjectNotFound", "DenyNeverFires",
    ]  # fmt: skip


def test_what_the_author_asked_for_is_no_warning(tmp_path: Path) -> None:
    later = binding("planner", ["calculator:use"], notBefore="2999-01-01T00:00:00Z")
    off = tool("vault", backend={"none": {}}, state="Disabled")
    allowed = secret(**LABEL)
    allowed["metadata"]["annotations"] = {"toolcrib.dev/hosts": "vault.example"}
    assert said(tmp_path, CALCULATOR, ACCOUNT, later, off) == []
    assert said(tmp_path, guarded(), allowed) == []


def test_the_first_of_two_tools_keeps_the_name_as_in_the_order_of_an_apply(tmp_path: Path) -> None:
    second = tool("a-calculator", name="calculator", backend={"none": {}})
    (found,) = (r for r in said(tmp_path, CALCULATOR, second) if not r.used)
    assert (found.item.name, found.reason) == ("a-calculator", "NameConflict")
