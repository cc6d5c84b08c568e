"""Implementations of `ports`: the Kubernetes API, the registry's admin channel, and memory."""
