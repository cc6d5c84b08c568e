"""JSON schemas and patterns that somebody else wrote: may they be evaluated, and what does a check cost?"""
