"""Calls that a person confirms one by one: `toolcrib calls`."""
