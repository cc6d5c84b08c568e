"""Trials of a tool's definition: who gets the candidate, and what its numbers say."""
