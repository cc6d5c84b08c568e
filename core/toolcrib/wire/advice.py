"""What clients are advised to send; apart, so that help texts need not load the models."""

ADVISED_MIN_SCORE = 0.004
"""The `min_score` that guides and help texts advise to callers with up to 15 tools: at least nine in ten right tools of everyday
requests are above it (`python bench/search/run.py everyday`)."""
