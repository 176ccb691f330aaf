"""One source in one stream: which numbers it has published, told from what is merely offered.

    number:   1 ........ last_durable ........ last_assigned        (anything above is a gap, anything at or below a
    duplicate)

Invariants
    (1) last_durable <= last_assigned; what lies between waits for the journal and is undone if the journal refuses it.
    (2) A dense source's next batch starts at last_assigned + 1; a sparse one's anywhere above.
    (3) `epoch` only grows.
    (4) What it keeps is in the share of its owner.
Source: docs/internals/DESIGN.md, "Sources".
"""

from __future__ import annotations

from array import array
from enum import Enum

from veredus.kernel.names import INCARNATION_SIZE

from .shares import Shares

PAST_MAX = 4
"""So many incarnations are known again that were taken over from."""
INDEX_COUNT_MAX = 64
"""How many batches back a duplicate is answered with its first sequence."""
_INDEX_ROW = 3
"""A batch's first and last number, and its first sequence."""


class Verdict(Enum):
    """What an offered range of numbers is to a source."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    STRADDLES = "straddles"
    GAP = "gap"


class SourceState:
    """Owns what a stream knows of one source."""

    __slots__ = (
        "_recent",
        "_share",
        "_shares",
        "epoch",
        "granted",
        "incarnation",
        "is_sparse",
        "last_assigned",
        "last_durable",
        "last_sequence",
        "name",
        "opening",
        "past",
        "session",
        "source_id",
        "token",
        "token_number",
    )

    def __init__(self, source_id: int, name: str, is_sparse: bool, shares: Shares) -> None:
        """A source that has published nothing yet, and is nobody's; `shares` are those of its stream."""
        self.source_id = source_id
        self.name = name
        self.is_sparse = is_sparse
        self.epoch = 0
        self.incarnation = b""
        self.past: tuple[bytes, ...] = ()
        """Incarnations that were taken over from, the newest last; those of this process, and some of them."""
        self.granted = (0, b"", "")
        """The epoch, the incarnation and the owner that are in the journal."""
        self.opening: tuple[tuple[int, bytes, str], ...] = ()
        """Those that are on their way there, the newest last."""
        self.last_assigned = 0
        self.last_durable = 0
        self.last_sequence = 0
        self.token = b""
        self.token_number = 0
        self.session = 0
        # A deque, or tuples in a list, would take several times as much, and there are hundreds of thousands.
        self._recent = array("q")
        self._shares = shares
        self._share = shares.of("")
        self._share.add(1, 0)

    @property
    def owner(self) -> str:
        """The principal whose name it is, "" for nobody in particular."""
        return self._share.owner

    def own(self, owner: str) -> None:
        """It is this owner's from now on."""
        if owner != self._share.owner:
            self._share.add(-1, -len(self.token))
            self._share = self._shares.of(owner)
            self._share.add(1, len(self.token))

    def leave(self) -> None:
        """It is not there any more."""
        self._share.add(-1, -len(self.token))

    def keep_token(self, number: int, token: bytes) -> None:
        """It has a token that speaks up to `number`; what the one before took is free again."""
        self._share.add(0, len(token) - len(self.token))
        self.token, self.token_number = token, number

    def open(self, epoch: int, incarnation: bytes, owner: str) -> None:
        """Another incarnation takes the source over, under a new epoch; that is on its way to the journal."""
        if self.incarnation:
            self.past = (*self.past, self.incarnation)[-PAST_MAX:]
        self.epoch, self.incarnation = epoch, incarnation
        self.opening = (*self.opening, (epoch, incarnation, owner))
        self.own(owner)

    def is_past(self, epoch: int, incarnation: bytes) -> bool:
        """Whether whoever asks under this epoch, 0 for none yet, was taken over from: what it asks may come late.

        The epoch alone would not do: a stream that was created again counts its epochs anew.
        """
        if incarnation == self.incarnation:
            return epoch not in (0, self.epoch)
        return epoch > 0 or incarnation in self.past

    @property
    def is_opening(self) -> bool:
        """Whether a newer epoch is on its way to the journal."""
        return self.epoch != self.granted[0]

    def become_granted(self, epoch: int, incarnation: bytes, owner: str) -> None:
        """The epoch is in the journal."""
        self.granted = (epoch, incarnation, owner)
        self.opening = tuple(newer for newer in self.opening if newer[0] > epoch)

    def undo_open(self, epoch: int) -> None:
        """The journal refused the epoch: if no newer one was asked for, the one before it stands, which may still be on
        its way: what there is no space for is refused at once.
        """
        self.opening = tuple(other for other in self.opening if other[0] != epoch)
        if self.epoch == epoch:
            self.epoch, self.incarnation, owner = self.opening[-1] if self.opening else self.granted
            if self.incarnation in self.past:
                # Nothing has taken over from it, nor from whoever asked since.
                self.past = self.past[: self.past.index(self.incarnation)]
            self.own(owner)

    def judge(self, first: int, last: int) -> Verdict:
        """Whether numbers `first` to `last` come next, were there before, or neither."""
        if last <= self.last_assigned:
            return Verdict.DUPLICATE
        if first <= self.last_assigned:
            return Verdict.STRADDLES
        if self.is_sparse or first == self.last_assigned + 1:
            return Verdict.NEXT
        return Verdict.GAP

    def assign(self, last: int) -> None:
        """Numbers up to `last` are on their way to the journal."""
        self.last_assigned = last

    def unassign(self, before: int) -> None:
        """The journal refused what came behind number `before`, and so everything behind it."""
        self.last_assigned = max(self.last_durable, min(self.last_assigned, before))

    def become_raised(self, number: int, token: bytes) -> None:
        """It has published up to `number`, elsewhere; that is in the journal."""
        self.last_durable = max(self.last_durable, number)
        self.last_assigned = max(self.last_assigned, number)
        self.keep_token(number, token)

    def is_told_by(self, number: int, token: bytes, last: int) -> bool:
        """Whether something is new in this: that it has published up to `number`, the last of it with a token; `last`
        is up to where it has here.
        """
        is_unknown = not self.token or self.token_number < number
        return number > last or (number == last and is_unknown and token != b"")

    def become_known(self, owner: str) -> None:
        """It has published elsewhere, and so it is here, its `owner`'s if nobody owns it; that is in the journal."""
        epoch, incarnation, known = self.granted
        if not epoch:
            epoch, incarnation = 1, bytes(INCARNATION_SIZE)
        if not self.epoch:
            self.open(epoch, incarnation, owner)
        self.become_granted(epoch, incarnation, known or owner)
        self.own(self.owner or owner)

    def undo_known(self) -> None:
        """The journal refused whose it is: if nobody takes it over at this moment, it is whose it was."""
        if not self.is_opening:
            self.own(self.granted[2])

    def become_durable(self, first: int, last: int, first_sequence: int, count: int, token: bytes | None) -> None:
        """A batch is in the journal. `token` None leaves the resume token as it was."""
        self.last_durable = last
        self.last_assigned = max(self.last_assigned, last)
        self.last_sequence = first_sequence + count - 1
        if token is not None:
            self.keep_token(last, token)
        self._recent.extend((first, last, first_sequence))
        if len(self._recent) > INDEX_COUNT_MAX * _INDEX_ROW:
            del self._recent[:_INDEX_ROW]

    def store_token(self, number: int, token: bytes) -> None:
        """A token that no publication carries is in the journal. One that speaks further stays, and so does the one
        before where damage took publications that this one speaks of.
        """
        if self.token_number <= number <= self.last_durable:
            self.keep_token(number, token)

    def sequence_of(self, number: int) -> int:
        """The sequence of a durable publication, 0 when it has left the index."""
        for at in range(len(self._recent) - _INDEX_ROW, -1, -_INDEX_ROW):
            first, last, first_sequence = self._recent[at : at + _INDEX_ROW]
            if number > last:
                return 0
            if number >= first:
                return first_sequence + number - first
        return 0
