"""`toolcrib access requests`, `approve` and `reject`: what agents ask for, and what people make of it."""
