"""The admission policies: whether they are in place, and which bindings were checked by them."""
