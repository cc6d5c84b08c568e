"""The one place the distribution's version stands."""

__version__ = "0.1.0"
