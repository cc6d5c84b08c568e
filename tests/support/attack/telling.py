"""D. Hidden is absent: on every route the same answer, in the metrics the same numbers; metrics are not for agents."""

from __future__ import annotations

import random
import re
from typing import Any

from attack.stage import JSON, Stage, Target, code_of, hold, service
from registry_harness import binding, tool
from toolcrib.resources.tools import ToolState


def _tool_call(name: str, arguments: str) -> str:
    """A message of MCP, in the revision that takes no header."""
    params = f'{{"name":"{name}","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'


ROUTES = (
    ("GET", "/tools/$", None),
    ("POST", "/tools/$", "{}"),
    ("POST", "/tools/$", "no json"),
    ("GET", "/v1/tools/$", None),
    ("POST", "/v1/describe", '{"tool":"$"}'),
    ("POST", "/v1/load", '{"tools":["$","seen"]}'),
    ("POST", "/v1/call", '{"tool":"$","arguments":{}}'),
    ("POST", "/v1/call", '{"tool":"$","arguments":{"a":[1,2]}}'),
    ("POST", "/v1/search", '{"query":"$"}'),
    ("POST", "/v1/search", '{"query":"x","servers":["$"]}'),
    ("POST", "/v1/search", '{"tags":["$"]}'),
    ("GET", "/v1/tools?server=$", None),
    ("GET", "/v1/access-review?tool=$", None),
    ("POST", "/mcp", _tool_call("call_tool", '{"tool_id":"$","args":{"a":[1,2]}}')),
    ("POST", "/mcp", _tool_call("describe_tool", '{"tool_id":"$"}')),
    ("POST", "/mcp", _tool_call("load_tools", '{"tool_ids":["$","seen"]}')),
    ("POST", "/mcp", _tool_call("search_tools", '{"query":"$","allow_servers":["$"]}')),
    ("POST", "/mcp", _tool_call("$", "{}")),
    ("POST", "/mcp/direct", _tool_call("$", "{}")),
    ("POST", "/mcp/direct", f"[{_tool_call('$', '{}')},{_tool_call('team__$', '{}')}]"),
    ("POST", "/mcp/direct", '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"$"}}'),
)
METRICS = (
    "/metrics",
    "/metrics/",
    "//metrics",
    "/%6detrics",
    "/v1/metrics",
    "/tools/metrics",
    "/v1/admin/state",
    "/METRICS",
    "/metrics?x=1",
)
_OURS = ("x-request-id", "date")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Pairs of a hidden tool and of none."""
    target = stage.target()
    for number in range(count):
        if number % 10 == 9:
            _metrics(draw, target)
        else:
            _pair(draw, target)
    return count


def _pair(draw: random.Random, target: Target) -> None:
    hidden_name = draw.choice(["secret", "vault.open", "a__b", "Zed"]) + str(draw.randrange(1000))
    absent = re.sub("[A-Za-z0-9]", "q", hidden_name)
    how = draw.choice(["scope", "disabled", "denied", "denied scope", "expired", "elsewhere"])
    fields: dict[str, Any] = {"scopes": ("s",), "server": hidden_name, "tags": (hidden_name,)}
    bindings = [binding("bot", ["s"]), binding("bot", ["seen:use"], name="seen")]
    if how == "scope":
        fields["scopes"] = ("other",)
    elif how == "disabled":
        fields["state"] = ToolState.DISABLED
    elif how == "denied":
        bindings.append(binding("bot", [], name="deny", deny=(hidden_name,)))
    elif how == "denied scope":
        bindings.append(binding("bot", [], name="deny", deny_scopes=("s",)))
    elif how == "expired":
        bindings[0] = binding("bot", ["s"], expires_at=1.0)
    else:
        fields["namespace"] = "north"
    hidden = tool(hidden_name, object_name=f"o{draw.randrange(1000)}", backend=service("team", "/"), **fields)
    target.publish([hidden, tool("seen", backend=service("team", "/"))], bindings)
    by_id = draw.random() < 0.3
    name = hidden.tool_id if by_id else hidden_name
    nothing = re.sub("[A-Za-z0-9]", "q", name) if by_id else absent
    for method, path, body in draw.sample(ROUTES, 5):
        there, nowhere = (_asked(target, method, path, body, n) for n in (name, nothing))
        case = {"route": f"{method} {path}", "body": body, "hidden": how, "name": name}
        hold("a hidden tool and none are answered alike", there == nowhere, there=there, none=nowhere, **case)
        counts = []
        for asked in (name, nothing):
            before = _told(target)
            _asked(target, method, path, body, asked)
            after = _told(target)
            counts.append({k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)})
        hold("a hidden tool and none are counted alike", counts[0] == counts[1], counts=counts, **case)
    seen = target.describe("seen")
    hold("a tool that is granted is there", seen.status_code == 200, answer=seen.text)


def _asked(target: Target, method: str, path: str, body: str | None, name: str) -> tuple[Any, ...]:
    filled = None if body is None else body.replace("$", name)
    answer = target.http.request(
        method, target.url + path.replace("$", name), headers={**target.auth(), **JSON}, content=filled
    )
    headers = sorted((k, v) for k, v in answer.headers.items() if k not in _OURS)
    return answer.status_code, answer.text.replace(name, "NAME"), headers


def _told(target: Target) -> dict[str, float]:
    """What a scraper reads of decisions."""
    names = "toolcrib_(denials|decisions|calls|discoveries|searches_empty|authentications_refused|audit_records)_total"
    found = re.findall(rf"^({names}\S*) (\S+)$", target.metrics(), re.MULTILINE)
    return {series: float(value) for series, _, value in found}


def _metrics(draw: random.Random, target: Target) -> None:
    path = draw.choice(METRICS)
    headers = draw.choice([{}, target.auth(), {"X-Forwarded-For": "127.0.0.1", "X-Original-URL": "/metrics"}])
    answer = target.http.get(target.url + path, headers=headers)
    hold(
        "metrics and the admin channel are not on the agents' port",
        answer.status_code in (401, 404) and "toolcrib_" not in answer.text,
        path=path,
        status=answer.status_code,
        code=code_of(answer),
    )
    answer = target.http.get(f"{target.running.metrics_url}/readyz", headers=target.auth())
    hold("the metrics port has nothing else", answer.status_code == 404, status=answer.status_code)
