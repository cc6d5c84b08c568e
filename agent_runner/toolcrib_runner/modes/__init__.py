"""How an agent comes by its tools: one module a mode. A mode decides what a model is shown and when that changes."""
