"""Keeps the search index in step with what is published: embeds, writes, reads back."""
