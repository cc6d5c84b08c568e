"""What a replica counted of the trials of tools (ToolCanary): cumulative, since the replica knows the trial."""

from __future__ import annotations

from pydantic import Field

from toolcrib.wire.model import Wire


class SideCounts(Wire):
    """The callers of one side: those with the candidate, or those with the tool's own definition."""

    selected: int = Field(default=0, ge=0, description="described or loaded by name")
    called: int = Field(
        default=0, ge=0, description="calls that ended ok or failed by the tool or its arguments"
    )
    failed: int = Field(default=0, ge=0, description="of these, those that failed")
    corrected: int = Field(
        default=0, ge=0, description="calls that were ok after the same caller's arguments were invalid"
    )


class CanaryCounts(Wire):
    """Both sides of one trial."""

    canary: str = Field(description="uid of the ToolCanary")
    stable: SideCounts = SideCounts()
    candidate: SideCounts = SideCounts()
