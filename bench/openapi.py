"""Real OpenAPI documents: what becomes a Tool, whether calls fit the document, and how well 1,200 tools are found.

One operation of each kind (method, places of its arguments, body) is called through a registry, against a stub that takes
only what the document describes. Queries of the search are the operations' own summaries; `without` means that the summary
is neither in title nor description, among the operations that have a longer description.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from typing import Any

import openapi_documents
from openapi_stub import ApiStub, arguments, kinds
from registry_harness import RunningRegistry, binding, running_registry
from stub_server import answering
from toolcrib import publishing
from toolcrib.resources import Tool, parse
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_cli.imports.openapi.importing import Result, Wanted, imported
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder

SCOPE = "api:use"
_QUERIES = 300


def run(quick: bool) -> dict[str, Any]:
    """Print the tables; the figures of them."""
    # each registry here warns that its assertions cannot be verified elsewhere
    logging.disable(logging.WARNING)
    documents = {name: openapi_documents.document(name) for name in openapi_documents.DOCUMENTS}
    with running_registry() as registry:
        documents["our own"] = registry.http.get(registry.url + "/openapi.json").json()
    figures: dict[str, Any] = {}
    print(
        f"\n{'document':14}{'operations':>11}{'imported':>9}{'with /':>7}{'left out':>9}{'s':>6}{'kinds':>7}{'called':>7}"
    )
    reasons: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for name, content in documents.items():
        stub = ApiStub(content)
        with answering(stub) as port:
            started = time.monotonic()
            result = imported(content, Wanted("team", "api", (SCOPE,), url=f"http://127.0.0.1:{port}"))
            took = time.monotonic() - started
            chosen = list(kinds(result.manifests))
            failed = _called(chosen, port)
        wrong += [f"{name}: {kind}: {why}" for kind, why in failed]
        made = len(result.manifests)
        print(
            f"{name:14}{result.total:>11,}{made:>9,}{result.slashes:>7}{len(result.left_out):>9}{took:>6.1f}{len(chosen):>7}"
            f"{len(chosen) - len(failed):>7}"
        )
        reasons.update({(name, why): count for why, count in result.reasons()})
        figures[name] = {
            "operations": result.total, "imported": made, "with_slash": result.slashes, "left_out": dict(result.reasons()),
            "kinds": len(chosen), "failed": len(failed),
        }  # fmt: skip
    print("\nleft out")
    for (name, why), count in sorted(reasons.items(), key=lambda each: (each[0][0], -each[1])):
        print(f"  {name:14}{count:>5}  {why}")
    for line in wrong:
        print(f"  failed: {line}")
    content = documents["github"]
    result = imported(content, Wanted("team", "github", (SCOPE,), url="http://127.0.0.1:9"))
    figures["search"] = _searched(content, result, 60 if quick else _QUERIES)
    figures["missed"] = bool(wrong)
    return figures


def _published(manifest: dict[str, Any]) -> PublishedTool:
    resource = parse(manifest, strict=True)
    assert isinstance(resource, Tool)
    return publishing.tool(resource)


def _called(chosen: list[tuple[str, dict[str, Any]]], port: int) -> list[tuple[str, str]]:
    """Kinds whose call did not come to what the document describes."""
    failed = []
    tools = [_published(manifest) for _, manifest in chosen]
    with running_registry(tools, [binding("bot", [SCOPE])]) as registry:
        secrets = {t.backend.auth.secret.name for t in tools if t.backend and t.backend.auth}
        sent = Credentials(
            epoch=1,
            credentials=tuple(
                Credential(
                    namespace="team", name=name, key="credential", hosts=(f"http://127.0.0.1:{port}",),
                    value="user:s3cret-value",
                )
                for name in secrets
            ),
        )  # fmt: skip
        registry.admin("POST", "/v1/admin/credentials", content=sent.model_dump_json())
        headers = registry.auth("team", "bot")
        for (kind, _), tool in zip(chosen, tools, strict=True):
            given = arguments(tool.input_schema)
            answer = registry.http.post(
                f"{registry.url}/v1/call", headers=headers, json={"tool": tool.tool_id, "arguments": given}
            )
            if answer.status_code != 200:
                failed.append((kind, f"{tool.name}: {answer.text[:300]}"))
    return failed


def _searched(content: Any, result: Result, most: int) -> dict[str, Any]:
    """How often a summary finds its tool, first and among five."""
    summaries: dict[str, str] = {}
    for path, item in content["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and operation.get("summary"):
                summaries[f"{method.upper()} {path}"] = operation["summary"]
    base = "http://127.0.0.1:9"
    asked = []
    for manifest in result.manifests:
        http = manifest["spec"]["backend"]["http"]
        if summary := summaries.get(f"{http['method']} {http['url'].removeprefix(base)}"):
            asked.append((summary, manifest))
    figures = {}
    print(f"\nsearch among {len(result.manifests):,} tools, queries: operation summaries")
    print(f"{'texts':10}{'queries':>8}{'first':>8}{'in 5':>8}{'in 10':>8}")
    for texts in ("with", "without"):
        tools, queries = [], []
        for summary, manifest in asked:
            spec = manifest["spec"]
            rest = spec["description"].removeprefix(summary).strip()
            if texts == "without" and len(rest) > 40:
                spec = {k: v for k, v in spec.items() if k != "title"} | {"description": rest}
            tool = _published({**manifest, "spec": spec})
            tools.append(tool)
            if texts == "with" or len(rest) > 40:
                queries.append((summary, tool.tool_id))
        step = max(1, len(queries) // most)
        figures[texts] = _found(tools, queries[::step], texts)
    return figures


def _found(tools: list[PublishedTool], queries: list[tuple[str, str]], texts: str) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        registry = stack.enter_context(
            running_registry(tools, [binding("bot", [SCOPE])], embedder=OnnxEmbedder.packaged(), patient=True)
        )
        headers = registry.auth("team", "bot")
        _index(registry, tools)
        modes = set()
        ranks = []
        for summary, wanted in queries:
            answer = registry.http.post(
                f"{registry.url}/v1/search", headers=headers, json={"query": summary, "limit": 10}
            ).json()
            modes.add(answer["search_mode"])
            ids = [hit["tool_id"] for hit in answer["tools"]]
            ranks.append(ids.index(wanted) if wanted in ids else 99)
    assert modes == {"hybrid"}, modes
    share = {f"in {k}": sum(r < k for r in ranks) / len(ranks) for k in (1, 5, 10)}
    print(f"{texts:10}{len(ranks):>8}{share['in 1']:>8.3f}{share['in 5']:>8.3f}{share['in 10']:>8.3f}")
    return {"queries": len(ranks), **share}


def _index(registry: RunningRegistry, tools: list[PublishedTool]) -> None:
    """All tools into the index, as the operator does it."""
    for start in range(0, len(tools), 100):
        body = {"epoch": 1, "upsert": [t.tool_id for t in tools[start : start + 100]]}
        answer = registry.admin("POST", "/v1/admin/index", json=body, timeout=120).json()
        assert len(answer["indexed"]) == len(body["upsert"]), answer["failed"]
