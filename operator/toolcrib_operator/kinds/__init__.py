"""Deciding, without any I/O: what an object means, what is published of it and what its status says.

One module a kind, in the singular (`tool`, `binding`, …); in the plural what kinds share (`verdicts`, `statuses`, …).
"""
