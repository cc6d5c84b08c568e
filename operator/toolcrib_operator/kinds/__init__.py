"""Deciding, without any I/O: what an object means, what is published of it and what its status says.

One module a kind (`tool`, `binding`, …) with one object each, which `table` lists; `kind` says what such an object tells.
The others are what kinds share.
"""
