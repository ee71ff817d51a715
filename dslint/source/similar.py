"""Words that are similar to a misspelt one. Comparing two words takes the product of their lengths, so long words are not compared."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 64
"""The longest word that is compared, in characters. The longest key of DeepSpeed has 50."""

MANY = 100
"""How many unknown names of one place are compared. More of them are not misspelt: they belong to something else."""


def similar(word: str, words: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """The words most similar to a word, the most similar first; see `difflib.get_close_matches`."""
    from difflib import get_close_matches  # imported only for a word that is wrong

    return get_close_matches(word, list(words), n=n, cutoff=cutoff) if len(word) <= LONGEST else []
