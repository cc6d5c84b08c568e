"""Bearer tokens: read strictly before anything in them is believed, and which claim carries what."""
