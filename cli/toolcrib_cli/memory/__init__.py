"""`toolcrib memory`: what agents store and recall, as a pair of Tools behind the registry.

Only the registry can call it, and an agent reaches its own memory alone. Extracts are made without a model.
"""
