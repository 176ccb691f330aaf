"""What callers of the topic service's clients give, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from time import monotonic

from veredus.kernel.errors import Misuse, Refused
from veredus.kernel.octets import Octets
from veredus.protocols.topics.many import COUNT_MAX, pack
from veredus.protocols.topics.words import check_word

WORD_SIZE_MAX = 512
"""So that an id, a topic and the id of a message fit into a header."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 0.5


def check_named(kind: str, word: str) -> None:
    """Raise `Misuse` for an id or a topic that a header cannot carry (`bad-word`), and for what is no text."""
    if not isinstance(word, str):
        raise Misuse("bad-argument", f"the {kind} must be text, not {word!r:.60}", argument=kind)
    try:
        check_word(kind, word)
        size = len(word.encode())
    except Refused as error:
        said = error.message.partition(" in a header,")[0]
        raise Misuse(error.code, f"{said}; use neither spaces nor control characters", **error.details) from None
    except UnicodeEncodeError as error:
        said = f"{kind} {word!r}: character {word[error.start]!r} at position {error.start} cannot be written as UTF-8"
        raise Misuse("bad-word", said, kind=kind, word=word, position=error.start) from None
    if size > WORD_SIZE_MAX:
        said = f"{kind} {word[:40]!r}… has {size} bytes as UTF-8, and {WORD_SIZE_MAX} are allowed"
        raise Misuse("bad-word", said, kind=kind, word=word)


def packed_of(bodies: Sequence[Octets | str]) -> bytes:
    """Many messages as one body. Raises `Misuse`: `too-many`, `bad-argument`."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        said = f"put_many takes a list of bodies, not {bodies!r:.60}: put takes a single one"
        raise Misuse("bad-argument", said, argument="bodies")
    if isinstance(bodies, Mapping | Set) or not hasattr(bodies, "__len__"):
        said = f"put_many takes a list of bodies, not {type(bodies).__name__}: pass a list"
        raise Misuse("bad-argument", said, argument="bodies")
    if len(bodies) > COUNT_MAX:
        said = f"one put_many may have at most {COUNT_MAX} messages, and these are {len(bodies)}: put them in parts"
        raise Misuse("too-many", said)
    return pack([octets_of(body) for body in bodies])


def octets_of(given: object, argument: str = "body") -> bytes:
    """The bytes of a body or a key: text as UTF-8. Raises `Misuse("bad-argument")` for what is neither."""
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            said = f"a {argument} cannot be written as UTF-8: {error}"
            raise Misuse("bad-argument", said, argument=argument) from None
    if not isinstance(given, bytes | bytearray | memoryview):
        hint = ": encode it first, for example with json.dumps" if isinstance(given, dict | list | tuple) else ""
        raise Misuse("bad-argument", f"a {argument} must be bytes or text, not {given!r:.60}{hint}", argument=argument)
    return bytes(given)


def checked_count(count_max: int) -> int:
    """How many messages are wanted at once. Raises `Misuse("too-few")` for none."""
    if isinstance(count_max, bool) or not isinstance(count_max, int):
        raise Misuse("bad-argument", f"count_max must be a whole number, not {count_max!r:.60}", argument="count_max")
    if count_max < 1:
        raise Misuse("too-few", f"{count_max} is not a valid count of messages to get: ask for at least one")
    return min(count_max, COUNT_MAX)


def check_wait(wait_s: object) -> None:
    """Raise `Misuse("bad-argument")` unless this says how many seconds to wait."""
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise Misuse("bad-argument", f"wait_s must be a number from 0, not {wait_s!r:.60}", argument="wait_s")


def pauses(wait_s: float) -> Iterator[float]:
    """How long to pause before asking once more, until `wait_s` is over; gentler by and by."""
    end, pause = monotonic() + wait_s, PAUSE_FIRST_S
    while (left := end - monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, PAUSE_MAX_S)
