"""The search index on a Weaviate server: only these modules import its client library."""
