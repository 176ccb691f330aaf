"""The words of which messages of the topic service are made, and how they are read. Source: seed 000, section 3.1."""

from __future__ import annotations

import re
from collections.abc import Sequence

from veredus.kernel.errors import PeerFault, Refused

END_OF_LINE = b"\r\n"
NO_MESSAGE_ID = "-1"
"""Said by who never got a message; no message has this id. Source: seed 000, section 3.1.3."""
_NOT_IN_A_WORD = re.compile(r"[\x00-\x20\x7f-\x9f]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SHOWN = 40


def check_word(kind: str, word: str) -> None:
    """Raise `Refused("bad-word")` for what cannot be said as one word of a header: which character, and where."""
    if word.isprintable() and word and " " not in word:
        return
    found = _NOT_IN_A_WORD.search(word)
    if found is not None:
        where = f"character {found[0]!r} at position {found.start()}"
        said = f"{kind} {word!r}: {where} is not allowed in a header, where a space ends a word"
        raise Refused("bad-word", said, kind=kind, word=word, position=found.start())
    if not word:
        article = "an" if kind[:1] in "aeiou" else "a"
        raise Refused("bad-word", f"{article} {kind} must have at least one character", kind=kind, word=word)


def words_of(line: bytes) -> list[str]:
    """The words of one line, behind the last of which one space may be. Raises `PeerFault("bad-message")`."""
    try:
        text = line.decode()
        words = text.split(" ")
    except UnicodeDecodeError as error:
        raise PeerFault(
            "bad-message", f"a header must be UTF-8: byte {error.start} of {beginning(line)} is not"
        ) from error
    if len(words) > 1 and not words[-1]:
        words.pop()
    if text.isprintable() and "" not in words:
        # A hundred thousand topics are judged at once, as is what is wrong with them.
        return words
    found = _CONTROL.search(text)
    wrong = [] if found is None else [text.count(" ", 0, found.start())]
    wrong += [words.index("")] if "" in words else []
    for at in sorted(wrong):
        try:
            check_word("word", words[at])
        except Refused as error:
            raise PeerFault("bad-message", f"{error.message} ({beginning(line)})") from error
    return words


def words_of_each(lines: Sequence[bytes]) -> list[list[str]]:
    """The same of each of these lines: a hundred thousand of them are judged at once too."""
    try:
        text = b"\n".join(lines).decode()
    except UnicodeDecodeError:
        return [words_of(line) for line in lines]
    told = [line.removesuffix(" ").split(" ") for line in text.split("\n")] if lines else []
    is_plain = (
        text.replace("\n", "").isprintable() and len(told) == len(lines) and all("" not in words for words in told)
    )
    return told if is_plain else [words_of(line) for line in lines]


def beginning(data: bytes) -> str:
    """What is shown of a message that is wrong."""
    return repr(data[:_SHOWN].decode(errors="backslashreplace")) + ("…" if len(data) > _SHOWN else "")
