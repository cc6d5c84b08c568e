"""Routes, one module a topic; each has a `router` that `create_app` includes by name."""
