"""Who is asking: from a token to an identity, the keys of issuers, and the local mode's own issuer."""
