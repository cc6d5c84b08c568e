"""Requests that nobody has made before, so that no cache answers them, in the same words as ever."""

import itertools

_SIGNS = str.maketrans("01", "!~")
_numbers = itertools.count(1)


def fresh(words: str) -> str:
    """`words` with signs behind them that no other request of this process has.

    They are no words: neither the ranking nor the vector of an embedder of words changes. A random word would change
    both, and once in ten thousand requests (`d150` finds tool 150) another tool would rightly be the first.
    """
    return f"{words} {format(next(_numbers), 'b').translate(_SIGNS)}"
