"""Statuses, finalizers and events: what is to be written, when, and the writing."""
