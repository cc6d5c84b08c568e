"""Stores of counters: in memory, and in Redis or Valkey."""
