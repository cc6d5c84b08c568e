"""Routes: HTTP in, domain calls, HTTP out."""
