"""The one HTTP client that reaches out, and how it looks names up."""
