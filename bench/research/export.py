"""Make `model.onnx` of a trained encoder: weights in eight bits for shipping, or in full.

    python bench/research/export.py BASE OUT [--weights CHECKPOINT.safetensors ...] [--mix 1.0] [--full | --texts FILE]

BASE is the base model's folder (`config.json`, `model.safetensors`, `tokenizer.json`), OUT the folder that receives
`model.onnx` and `tokenizer.json`, as the embedder of the registry reads them. Several checkpoints are averaged.
`--mix 0.8` takes .8 of them and .2 of the base (Wortsman et al. 2022); without `--weights` it is the base itself.
Needs what `bench/research/requirements-training.txt` names.

The eight-bit form scales each column of a weight by itself and keeps to -64...64. The product of a byte and two such
weights stays below 2^15, so that the pairwise sums of processors without VNNI cannot saturate: every CPU gives the
same vectors but for rounding. Inputs of the products have a few channels that are much larger than the rest, and one
scale for all of them costs precision: that is moved into the weights beforehand, by the largest value that each
channel takes over the sample texts of `--texts`, one JSON object with `description` or `query` a line (SmoothQuant,
Xiao et al. 2023). One graph takes one text at a time, without padding and so without a mask.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

MOST = 64
"""The largest eight-bit weight: 255 * 64 * 2 < 2**15."""
BALANCE = 0.8
"""How much of a channel's size goes from the inputs into the weights."""
SAMPLES = 150
_MICROSOFT = "com.microsoft"
Weights = dict[str, np.ndarray]


class Graph:
    """A BERT encoder as ONNX nodes."""

    def __init__(
        self, config: dict[str, Any], weights: Weights, full: bool, largest: Weights | None = None
    ) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.weights, self.full = weights, full
        self.largest = largest or {}
        """The largest value of each channel of the input of a product, by the product's label."""
        self.given: dict[str, str] = {}
        """The input of each product."""
        self.epsilon = float(config["layer_norm_eps"])
        self.heads = int(config["num_attention_heads"])
        self.layers = int(config["num_hidden_layers"])

    def constant(self, name: str, value: np.ndarray) -> str:
        """A stored tensor."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], name: str, domain: str = "", **options: Any) -> str:
        """One operation; its output has its name."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **options))
        return name

    def embeddings(self) -> str:
        """Token, place and type, normalised: (1, tokens, hidden)."""
        words = self.weights["embeddings.word_embeddings.weight"]
        places = self.weights["embeddings.position_embeddings.weight"]
        places = places + self.weights["embeddings.token_type_embeddings.weight"][0]
        if self.full:
            found = self.node("Gather", [self.constant("words", words), "input_ids"], "word")
        else:
            scale = np.maximum(np.abs(words).max(axis=1, keepdims=True), 1e-9) / 127
            stored = self.constant("words", np.round(words / scale).astype(np.int8))
            rows = self.node("Gather", [stored, "input_ids"], "word_bytes")
            numbers = self.node("Cast", [rows], "word_numbers", to=TensorProto.FLOAT)
            scales = self.node(
                "Gather", [self.constant("scales", scale.astype(np.float32)), "input_ids"], "word_scale"
            )
            found = self.node("Mul", [numbers, scales], "word")
        shape = self.node("Shape", ["input_ids"], "length", start=1, end=2)
        zero, one = (
            self.constant("zero", np.array([0], np.int64)),
            self.constant("one", np.array([1], np.int64)),
        )
        place = self.node("Slice", [self.constant("places", places), zero, shape, zero, one], "place")
        total = self.node("Add", [found, place], "embedded")
        return self.norm("embeddings.LayerNorm", total)

    def norm(self, name: str, given: str) -> str:
        """Layer normalisation."""
        scale, bias = (self.constant(f"{name}.{p}", self.weights[f"{name}.{p}"]) for p in ("weight", "bias"))
        return self.node("LayerNormalization", [given, scale, bias], name, axis=-1, epsilon=self.epsilon)

    def linear(self, names: Sequence[str], given: str, label: str) -> str:
        """One product for the layers `names`, their outputs side by side."""
        weight = np.concatenate([self.weights[f"{n}.weight"] for n in names]).T
        bias = self.constant(f"{label}.bias", np.concatenate([self.weights[f"{n}.bias"] for n in names]))
        self.given[label] = given
        if self.full:
            product = self.node(
                "MatMul", [given, self.constant(f"{label}.weight", weight)], f"{label}.product"
            )
            return self.node("Add", [product, bias], label)
        if label in self.largest:
            size = np.maximum(self.largest[label], 1e-5) ** BALANCE
            size = (size / np.maximum(np.abs(weight).max(axis=1), 1e-5) ** (1 - BALANCE)).astype(np.float32)
            weight = weight * size[:, None]
            given = self.node("Mul", [given, self.constant(f"{label}.even", 1 / size)], f"{label}.evened")
        scale = (np.maximum(np.abs(weight).max(axis=0), 1e-9) / MOST).astype(np.float32)
        stored = self.constant(f"{label}.weight", np.round(weight / scale).astype(np.int8))
        zero = self.constant(f"{label}.zero", np.zeros(weight.shape[1], np.int8))
        inputs = [given, stored, self.constant(f"{label}.scale", scale), zero, bias]
        return self.node("DynamicQuantizeMatMul", inputs, label, _MICROSOFT)

    def layer(self, number: int, given: str) -> str:
        """Attention and the two wide products."""
        p = f"encoder.layer.{number}."
        names = [f"{p}attention.self.{n}" for n in ("query", "key", "value")]
        mixed = self.linear(names, given, f"{p}qkv")
        parts = [f"{p}{n}" for n in ("q", "k", "v")]
        self.nodes.append(helper.make_node("Split", [mixed], parts, name=f"{p}split", axis=2, num_outputs=3))
        seen = self.node("MultiHeadAttention", parts, f"{p}attention", _MICROSOFT, num_heads=self.heads)
        out = self.linear([f"{p}attention.output.dense"], seen, f"{p}attention.out")
        first = self.norm(f"{p}attention.output.LayerNorm", self.node("Add", [out, given], f"{p}sum"))
        wide = self.linear([f"{p}intermediate.dense"], first, f"{p}wide")
        bent = self.node("Gelu", [wide], f"{p}gelu", _MICROSOFT)
        narrow = self.linear([f"{p}output.dense"], bent, f"{p}narrow")
        return self.norm(f"{p}output.LayerNorm", self.node("Add", [narrow, first], f"{p}sum2"))

    def model(self, note: str) -> onnx.ModelProto:
        """The whole graph: `input_ids` (1, tokens) to `hidden` (1, tokens, hidden)."""
        last = self.embeddings()
        for number in range(self.layers):
            last = self.layer(number, last)
        self.node("Identity", [last], "hidden")
        size = len(self.weights["embeddings.LayerNorm.weight"])
        graph = helper.make_graph(
            self.nodes, "encoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, "tokens", size])],
            self.constants,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_MICROSOFT, 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="toolcrib")
        made.doc_string = note
        return made


def blended(base: Weights, tuned: Sequence[Weights], share: float) -> Weights:
    """`share` of the mean of `tuned`, the rest of `base`."""
    if not tuned:
        return base
    return {
        name: ((1 - share) * value + share * np.mean([t[name] for t in tuned], axis=0)).astype(np.float32)
        for name, value in base.items()
        if name in tuned[0]
    }


def sizes(config: dict[str, Any], weights: Weights, tokenizer: Path, texts: Sequence[str]) -> Weights:
    """The largest value of each channel that goes into each product, over `texts`."""
    graph = Graph(config, weights, True)
    made = graph.model("")
    for name in set(graph.given.values()):
        made.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    cut = Tokenizer.from_file(str(tokenizer))
    cut.no_padding()
    cut.enable_truncation(128)
    names = list(graph.given)
    largest: Weights = {}
    for text in texts:
        ids = np.array([cut.encode(text).ids], np.int64)
        for label, value in zip(
            names, session.run([graph.given[n] for n in names], {"input_ids": ids}), strict=True
        ):
            found = np.abs(value[0]).max(axis=0)
            largest[label] = np.maximum(largest.get(label, found), found)
    return largest


def samples(files: Sequence[Path]) -> list[str]:
    """Up to `SAMPLES` texts of each of `files`, evenly drawn."""
    found: list[str] = []
    for file in files:
        texts = [
            t for row in map(json.loads, file.open()) if (t := row.get("query") or row.get("description"))
        ]
        found += texts[:: max(1, len(texts) // SAMPLES)][:SAMPLES]
    return found


def export(
    base: Path, out: Path, checkpoints: Sequence[Path], share: float, full: bool, texts: Sequence[Path] = ()
) -> Path:
    """Write `out`/model.onnx and tokenizer.json; the path of the model."""
    weights = {
        k: v.astype(np.float32)
        for k, v in load_file(base / "model.safetensors").items()
        if v.dtype.kind == "f"
    }
    mixed = blended(weights, [load_file(c) for c in checkpoints], share)
    config = json.loads((base / "config.json").read_text())
    largest = sizes(config, mixed, base / "tokenizer.json", samples(texts)) if texts and not full else None
    made = Graph(config, mixed, full, largest).model(
        "all-MiniLM-L6-v2 (Apache-2.0), tuned for tool retrieval by Toolcrib"
    )
    out.mkdir(parents=True, exist_ok=True)
    onnx.checker.check_model(made)
    onnx.save(made, out / "model.onnx")
    shutil.copyfile(base / "tokenizer.json", out / "tokenizer.json")
    return out / "model.onnx"


def main() -> None:
    """Read the options and write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, nargs="*", default=[])
    parser.add_argument("--mix", type=float, default=1.0, help="share of the trained weights")
    parser.add_argument(
        "--texts", type=Path, nargs="*", default=[], help="JSON lines to measure the inputs by"
    )
    parser.add_argument(
        "--full", action="store_true", help="32-bit weights: twice the time, four times the size"
    )
    options = parser.parse_args()
    path = export(options.base, options.out, options.weights, options.mix, options.full, options.texts)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
