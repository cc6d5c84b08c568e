"""Deciding, without any I/O: what an object means, what is published of it and what its status says."""
