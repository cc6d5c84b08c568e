"""What a replica knows of the published policy: the snapshot, the views made of it, and how both come here."""
