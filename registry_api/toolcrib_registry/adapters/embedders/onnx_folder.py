"""A folder with a sentence model: `model.onnx`, `tokenizer.json`, and what sentence-transformers writes beside them.

Three small files are read where they are there, because vectors are wrong without what they say:
`1_Pooling/config.json` (mean of all tokens, or the first one), `sentence_bert_config.json` (`max_seq_length`) and
`config_sentence_transformers.json` (`prompts`: what is put before a query and before a document).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolcrib_registry.search.errors import EmbedderUnavailable

MODEL, TOKENIZER = "model.onnx", "tokenizer.json"
_POOLING, _LENGTH, _PROMPTS = (
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")

MAX_TOKENS = 256
"""Longer texts are cut unless the model says otherwise; the packaged one was trained on shorter ones."""
_MOST_TOKENS = 8_192

Pooling: TypeAlias = Literal["mean", "first"]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Where a model's files are and how its vectors are made."""

    model: Path
    tokenizer: Path
    digest: str
    """Of all the files that a vector depends on: 64 hex digits."""
    pooling: Pooling = "mean"
    max_tokens: int = MAX_TOKENS
    query_prompt: str = ""
    document_prompt: str = ""

    @classmethod
    def read(cls, folder: Path) -> ModelFolder:
        """What lies in `folder`. Reads every file once, for the digest.

        Raises:
            EmbedderUnavailable: a file is missing, unreadable or says what is not supported.
        """
        digest = hashlib.sha256()
        # weights beyond 2 GB lie beside the model, by ONNX's convention under its name
        names = [MODEL, *sorted(p.name for p in folder.glob(f"{MODEL}?*")), TOKENIZER]
        for name in names:
            try:
                with (folder / name).open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise EmbedderUnavailable(
                    f"the embedding model's {folder / name} cannot be read: {error.strerror}"
                ) from error
        pooling = _json(folder / _POOLING, digest)
        length = _json(folder / _LENGTH, digest).get("max_seq_length")
        prompts = _json(folder / _PROMPTS, digest).get("prompts")
        prompts = prompts if isinstance(prompts, dict) else {}
        if length is not None and not (isinstance(length, int) and 8 <= length <= _MOST_TOKENS):
            raise EmbedderUnavailable(
                f"{folder / _LENGTH}: max_seq_length is not between 8 and {_MOST_TOKENS}"
            )
        return cls(
            folder / MODEL,
            folder / TOKENIZER,
            digest.hexdigest(),
            _pooling(pooling, folder),
            length or MAX_TOKENS,
            str(prompts.get("query") or ""),
            str(next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), "")),
        )


def _pooling(config: dict[str, Any], folder: Path) -> Pooling:
    chosen = sorted(name for name, on in config.items() if name.startswith("pooling_mode_") and on is True)
    if chosen in ([], ["pooling_mode_mean_tokens"]):
        return "mean"
    if chosen == ["pooling_mode_cls_token"]:
        return "first"
    raise EmbedderUnavailable(
        f"{folder / _POOLING}: {', '.join(chosen)} is not supported; use mean or cls alone"
    )


def _json(path: Path, digest: Any) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error.strerror}") from error
    digest.update(data)
    try:
        found = json.loads(data)
    except ValueError as error:
        raise EmbedderUnavailable(f"{path} is not JSON") from error
    if not isinstance(found, dict):
        raise EmbedderUnavailable(f"{path} is not an object")
    return found
