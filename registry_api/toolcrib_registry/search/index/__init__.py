"""What the search index holds is brought about: embedded, written, read back."""
