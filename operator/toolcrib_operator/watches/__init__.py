"""How the World hears of the cluster: kopf's watches record into it, lists and proofs complete it."""
