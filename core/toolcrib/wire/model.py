"""The base of what the operator and replicas send each other."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of wire models: immutable, unknown fields ignored (a newer leader may know more)."""

    model_config = ConfigDict(frozen=True, extra="ignore")
