"""Finding tools by what they do, within a caller's view: the service, the ranking below it, and the ports of index and vectors."""
