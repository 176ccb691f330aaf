"""How many there are of something, and which, in sentences for people."""

from __future__ import annotations


def counted(count: int, noun: str, nouns: str = "") -> str:
    """The count with its noun: "1 line", "2 lines"; `nouns` where the plural is not made by an s at the end."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def spanned(noun: str, first: int, last: int) -> str:
    """These, both ends included: "sequence 5", "sequences 5 to 7"."""
    return f"{noun} {first}" if first == last else f"{noun}s {first} to {last}"


def are(count: int) -> str:
    """What is said of so many: "1 is", "2 are"."""
    return "is" if count == 1 else "are"


def were(count: int) -> str:
    """What is said of so many: "1 was", "2 were"."""
    return "was" if count == 1 else "were"
