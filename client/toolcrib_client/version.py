"""The client's version: that of the release, so the one of `toolcrib`; a test compares them."""

__version__ = "0.1.0"
