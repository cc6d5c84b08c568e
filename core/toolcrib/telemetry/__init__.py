"""Logs, traces and metrics of all services: their forms, and the adapter for OpenTelemetry."""
