"""The outside world behind the ports: each SDK appears only in the module named for it."""
