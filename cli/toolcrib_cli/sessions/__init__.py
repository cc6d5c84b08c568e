"""Sessions: several agents that work in turns, each as itself, and what came of it."""
