"""`simulation_data`: made-up but reproducible measurements of the vault, for planning and for tests."""

import random
from dataclasses import dataclass
from typing import Final

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.problems import invalid_argument

DEFAULT_SCENARIO: Final = "vault_drill"
DEFAULT_STEPS: Final = 10
MOST_STEPS: Final = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """How one plan behaves. Times in seconds, depth in millimetres, noise in dB(A), distance in metres."""

    seconds_per_step: int
    drill_mm_per_step: float
    noise_db: float
    patrol_metres: float
    alarm_per_step: float


SCENARIOS: Final = {
    "quiet_entry": Scenario(30, 0.0, 34.0, 60.0, 0.002),
    "vault_drill": Scenario(60, 4.5, 71.0, 45.0, 0.011),
    "laser_grid": Scenario(5, 0.0, 38.0, 30.0, 0.016),
    "getaway": Scenario(15, 0.0, 62.0, 25.0, 0.030),
}


def simulate(arguments: Arguments) -> dict[str, object]:
    """Answer `{scenario, steps, measurements, alarm_probability}`: the same at every call. No argument is required."""
    arguments.expect({"scenario", "steps"})
    name = arguments.text("scenario", default=DEFAULT_SCENARIO, longest=64)
    steps = arguments.integer("steps", default=DEFAULT_STEPS, least=1, most=MOST_STEPS)
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise invalid_argument(f"Unknown scenario {name!r}; there are: {', '.join(SCENARIOS)}.")
    # Seeded by the scenario alone: a longer run begins with the shorter one.
    source = random.Random(f"toolcrib/{name}")  # noqa: S311 -- measurements, not secrets
    measurements: list[dict[str, object]] = []
    depth, undetected = 0.0, 1.0
    for step in range(steps):
        depth += scenario.drill_mm_per_step * source.uniform(0.8, 1.2)
        undetected *= 1 - scenario.alarm_per_step * source.uniform(0.5, 1.5)
        measurements.append(
            {
                "time_s": step * scenario.seconds_per_step,
                "drill_depth_mm": round(depth, 2),
                "noise_db": round(scenario.noise_db + source.uniform(-3, 3), 1),
                "guard_distance_m": round(scenario.patrol_metres * source.uniform(0.2, 1.0), 1),
                "alarm_probability": round(1 - undetected, 4),
            }
        )
    return {
        "scenario": name,
        "steps": steps,
        "measurements": measurements,
        "alarm_probability": round(1 - undetected, 4),
    }
