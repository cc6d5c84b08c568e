"""Agents that are suspended and resumed: `toolcrib agent suspend` and `resume`."""
