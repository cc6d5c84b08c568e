"""Tools that are services: one HTTP request a call."""
