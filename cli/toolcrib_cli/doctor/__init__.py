"""`toolcrib doctor`: the checklist of docs/guides/hardening.md, held against a cluster or the local mode.

Gathering (`looking`, `local`) and judging (`table` and the `checks_*`) are apart: facts in, verdicts out. No tool is called.
"""
