"""How much of its view an agent shows its model: everything, or what the model asked for. Pure.

A mode says what is offered next, a dialect how a reply is read; the loop acts.
"""
