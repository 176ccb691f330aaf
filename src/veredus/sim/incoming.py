"""The oracles of the way in: which streams there are, and what their sources were granted and told.

Source: guarantees 1 to 4 and 7.
"""

from __future__ import annotations

from typing import Any

from veredus.delivery.payload import read_rows
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.streams.exchange import BatchOffered, ConfirmTaken, GrantSource, SourceAttachRequested, TokenStoreRequested

from .audit import Audit
from .content import identity_in
from .views import PARKED, REDRIVING, StreamView
from .world import Violation, World


class WayIn(Audit):
    """Owns what is known of streams and of the sessions of sources."""

    def __init__(self, world: World) -> None:
        """Of a world in which nothing has been said yet."""
        super().__init__(world)
        self.ids: dict[bytes, int] = {}
        self.was_shaken = False
        """Whether what the node knew was ever damaged, and reported as that."""
        self.trimmed: dict[bytes, int] = {}
        self.asking_sources: dict[int, SourceAttachRequested] = {}
        self._sources: dict[int, tuple[SourceAttachRequested, StreamView]] = {}
        self._epochs: dict[int, int] = {}
        self._tokens: dict[int, dict[int, None]] = {}
        """By session: the numbers with which offered batches end that have a resume token."""
        self._storing: dict[tuple[int, int], int] = {}
        """By session and request: the numbers of tokens that are to be stored with no publication."""
        self._deleting: dict[tuple[int, int], StreamView] = {}
        self._deleting_unseen: dict[tuple[int, int], str] = {}
        """Names whose deletion was asked for when nobody had been granted anything of them."""
        self._nameless: dict[int, str] = {}
        """Who publishes without a name, by session."""
        self.sessions_in: tuple[dict[Any, Any], ...] = (
            self._sources, self.asking_sources, self._epochs, self._tokens, self._nameless, self._deleting,
            self._deleting_unseen, self._storing,
        )  # fmt: skip
        """What is over with the node's process."""

    def asks_to_trim(self, name: str, floor: int) -> int:
        """Somebody is about to ask for this floor, or for one as near to it as can be; which it is."""
        view = self.current.get(name)
        if view is None:
            return 1
        view.floor = view.floor_asked = max(view.floor_asked, min(floor, view.head + 1))
        view.floor = max(view.floor, view.floor_asked)
        return view.floor_asked

    def hear_offer(self, session: int, offered: BatchOffered | TokenStoreRequested) -> None:
        """A batch is offered, or a source's place that no batch carries."""
        if isinstance(offered, TokenStoreRequested):
            self._world.counts["tokens alone"] += 1
            self._storing[session, offered.request] = offered.number
            return
        self._world.counts["offers"] += 1
        if offered.header.token_size:
            self._tokens.setdefault(session, {})[offered.header.last_number] = None
        if session in self._sources and not self._sources[session][0].source:
            self._hear_anonymous(session, offered)

    def hear_closed(self, session: int) -> None:
        """A session is over."""
        for sessions in (self._sources, self._epochs, self._tokens, self._nameless):
            sessions.pop(session, None)

    def hear_deletion(self, session: int, request: int, name: str) -> None:
        """Somebody wants a stream deleted."""
        view = self.current.get(name)
        if view is None:
            self._deleting_unseen[session, request] = name
        else:
            view.is_dying = True
            self._deleting[session, request] = view

    def see_answer(self, session: int, request: int) -> None:
        """A request was answered; it may have been for a deletion."""
        deleted = self._deleting.pop((session, request), None)
        if deleted is not None:
            deleted.is_gone = True
        self._deleting_unseen.pop((session, request), None)
        number = self._storing.pop((session, request), None)
        if number is not None and session in self._sources:
            self._see_stored(*self._sources[session], self._epochs[session], number)

    def _see_stored(self, asked: SourceAttachRequested, stream: StreamView, epoch: int, number: int) -> None:
        if epoch < stream.epochs.get(asked.source, 0):
            raise Violation(
                "fenced", f"{asked.source} of an older epoch was told that its token for {number} is stored"
            )
        stream.tokens[asked.source] = max(number, stream.tokens.get(asked.source, 0))

    def stream_of(self, name: str, incarnation: bytes, stream_id: int) -> StreamView:
        """What is known of the stream that somebody was granted."""
        view = self.streams.get(incarnation)
        if view is None:
            old = self.current.get(name)
            if old is not None and not old.is_gone and not old.is_dying:
                raise Violation("deleted", f"another {name} is there, and nobody deleted the one before")
            if old is not None:
                old.is_gone = True
            view = self.streams[incarnation] = self.current[name] = StreamView(name, incarnation)
            view.was_replaced = old is not None
            view.is_shaken = self.was_shaken
            view.may_repeat = name.startswith(PARKED) and (bool(self._world.vanishing) or self._world.has_redrivers)
            # A deletion that is on its way may be of this one, which nobody had been granted when it was asked for.
            dying = [*self._deleting_unseen.values(), *(dying.name for dying in self._deleting.values())]
            view.is_dying = name in dying
            view.floor = self.trimmed.get(incarnation, 1)
            self.ids[incarnation] = stream_id
        elif view.is_gone:
            raise Violation("deleted", f"{name} was deleted, and is granted again")
        return view

    def see_source(self, session: int, grant: GrantSource) -> None:
        """A source was granted, and told where to go on."""
        asked = self.asking_sources[session]
        stream = self.stream_of(asked.stream, grant.stream_incarnation, grant.stream_id)
        self._sources[session] = asked, stream
        if not asked.source:
            return
        is_redriver = asked.source.startswith(REDRIVING)
        if is_redriver:
            stream.redriving[grant.source_id] = asked.source.split("/")[1]
        taken = stream.taken.get(asked.source, 0)
        if grant.last_number < taken:
            raise Violation("taken", f"{asked.source} was told {taken}, and now {grant.last_number}, of {asked.stream}")
        if grant.epoch < stream.epochs.get(asked.source, 0):
            raise Violation("fenced", f"epoch {grant.epoch} was granted to {asked.source} after a newer one")
        if 0 < asked.epoch < stream.epochs.get(asked.source, 0):
            raise Violation("fenced", f"{asked.source} presented epoch {asked.epoch}, an older one, and was granted")
        spoken = stream.tokens.get(asked.source, 0)
        if (grant.token_number if grant.token else 0) < spoken and not stream.is_shaken:
            raise Violation("taken", f"the token of {asked.source} spoke up to {spoken}, now to {grant.token_number}")
        if grant.token_number > grant.last_number:
            raise Violation("taken", f"the token of {asked.source} speaks up to {grant.token_number}")
        if grant.token and not is_redriver and grant.token != str(grant.token_number).encode():
            raise Violation("taken", f"{asked.source} got token {grant.token!r} for number {grant.token_number}")
        stream.taken[asked.source] = grant.last_number
        stream.epochs[asked.source] = grant.epoch
        self._epochs[session] = grant.epoch

    def _hear_anonymous(self, session: int, offered: BatchOffered) -> None:
        if session not in self._nameless:
            batch = memoryview(offered.record)[ENVELOPE_SIZE : ENVELOPE_SIZE + offered.header.size]
            self._nameless[session] = identity_in(read_rows(batch, offered.header).bodies[0]).who

    def see_taken(self, session: int, last: int, taken: ConfirmTaken) -> None:
        """Publications up to `last` were acknowledged."""
        asked, stream = self._sources.get(session, (None, None))
        if asked is None or stream is None:
            return
        if stream.is_gone:
            raise Violation("deleted", f"{last} of {asked.source} is taken by {stream.name}, which was deleted")
        if taken.first_sequence:
            stream.note_head(taken.first_sequence, self._world.now_ns)
        if not asked.source:
            self.anonymous_taken[self._nameless[session]] = last
            return
        if last in self._tokens.get(session, ()) and not taken.is_duplicate:
            stream.tokens[asked.source] = max(last, stream.tokens.get(asked.source, 0))
        if self._epochs.get(session, 0) < stream.epochs.get(asked.source, 0):
            raise Violation("fenced", f"{asked.source} of an older epoch was told that {last} is taken")
        self._world.counts["taken"] += 1
        if taken.is_duplicate:
            self._world.counts["duplicates"] += 1
        stream.taken[asked.source] = max(last, stream.taken.get(asked.source, 0))
