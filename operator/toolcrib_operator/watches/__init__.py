"""kopf's side: its watches record into the World, and nothing else happens here."""
