"""A connection to a node at any of several addresses, that stays one thing while its links come and go.

    IDLE ── open ──► CONNECTING ── welcome ──► OPEN ── link lost ──► CONNECTING ...
                          └── refused for good ──► CLOSED ◄── close ──┘

It keeps links apart (veredus.protocols.zeps.client has the rules of one), gives out channels, and tells every
attachment that hangs on it when a link came up, what its channel was told, and when the link is gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.errors import Misuse, Refused, Unavailable, VeredusError
from veredus.kernel.events import DeadlineReached, LinkOpened
from veredus.kernel.octets import Octets
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.bounds import DELIVER_SLACK_SIZE
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.client_exchange import (
    CloseRequested,
    LeaveRequested,
    MessageRequested,
    Opening,
    OpenRequested,
    TellClosed,
    TellLinkClosed,
    TellMessage,
    TellWelcome,
)
from veredus.runtime.clocks import read_clocks

from .addresses import Address
from .attachment import TOLD, Attachment
from .causes import PROVED_NO_MORE, TRANSIENT
from .granting import refuse
from .links import ConnectionSettings, LinkLog, Outcome
from .loops import check_loop
from .losses import Losses
from .pending import connections, finished, let_go_of_lost
from .requests import Requests
from .transport import (
    LINK,
    NO_PATH,
    NOBODY_THERE,
    NodeSocket,
    error_of_opening,
    nobody_at,
    open_socket,
    said_of_silence,
)

_dice = random.Random()
"""The jitter's own: a program that seeds the common one gets the same numbers with this library as without."""
BACKOFF_S = 0.02
BACKOFF_S_MAX = 5.0
WELCOME_BACKOFF_S_MAX, STEADY_S = 0.5, 1.0
"""The pause is at most the first where a node said WELCOME, and the least where the link then lived for the second."""
FAULT_COUNT_MAX = 5
"""So many times in a row a node may find fault with what it is sent before the connection gives up."""
STRANGER = "version-unknown"
"""What answered is no node, or one of another version."""
TICK_S = 0.25


class Connection:
    """Owns the links, the channels by number, and the requests that wait for an answer. Lives in one loop."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """A connection that is not open yet; to be made in its loop."""
        self.settings = settings
        self.welcome: m.Welcome | None = None
        self.failure: VeredusError | None = None
        self.is_inside = False
        """Whether it leads to a node of this process, which ends with it."""
        self.tell_link: Callable[[bool], object] = lambda _: None
        """Hears whenever a link is open, and whenever one that was is lost; in the loop."""
        self.loop = asyncio.get_running_loop()
        self._link: ClientLink | None = None
        self._socket: NodeSocket | None = None
        self._outcome = Outcome()
        self._channels: dict[int, Attachment] = {}
        self._attachments: dict[int, Attachment] = {}
        self._requests = Requests(self._ask_link, self.describe)
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._keeper: asyncio.Task[None] | None = None
        self._reason = "the connection was not accepted in time"
        self._sends: list[Octets] = []
        self._is_send_scheduled = False
        self.losses = Losses(self.describe)
        self._why_at_end = ""  # why there was no link as this was closed
        self._log = LinkLog()
        self._closed: VeredusError | None = None  # why nothing new may hang here, while what is pending may be sent
        self._why_alone = "the program ends"  # why nobody is told what is lost; "" where somebody waits for it

    # ── open, close ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Wait for the first link. Raises `Unavailable("unreachable")` in time, or what the node refused with."""
        let_go_of_lost()
        connections.add(self)
        self._keeper = self.loop.create_task(self._keep_to_the_end())
        try:
            async with asyncio.timeout(self.settings.open_s):
                await asyncio.shield(self._opened)
        except TimeoutError:
            why = self._why()
            is_nobody_there = why.endswith((NOBODY_THERE, NO_PATH))
            error = self._nobody_there(self.settings.open_s) if is_nobody_there else self._unreachable(why)
            await self.close(error)
            raise error from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self, error: VeredusError | None = None) -> None:
        """Say goodbye, and end everything that hangs on this connection."""
        self._shut(error or _closed())
        if self._keeper is not None:
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def leave(self) -> None:
        """Send what is pending, and close this. Behind a caller who is cancelled that is done without him."""
        self._why_alone = ""  # the caller is told what is lost
        try:
            if self.failure is None:
                self.bar(_closed())
                await finished(self.unfinished)
            await self.close()
        except asyncio.CancelledError:
            self._why_alone = "the closing of a connection was cancelled"
            if self.failure is not None or self._keeper is None or not self._keeper.cancel():
                self.say_lost(self._why_alone)
            raise

    def then(self, act: Callable[[], object]) -> None:
        """Do something once this has ended, also where it ends alone; in the loop."""
        if self._keeper is not None:
            self._keeper.add_done_callback(lambda _: act())

    def _shut(self, error: VeredusError) -> None:
        if self.failure is None:
            self._why_at_end = self.describe()[1]
            self.failure = error
        if self._keeper is not None:
            self._keeper.cancel()
        if self._link is not None:
            self.handle(LeaveRequested())
        self._end(self.failure)

    def bar(self, error: VeredusError) -> None:
        """Take nothing new, while what is pending is sent: it would never end; in any thread."""
        self._closed = error
        for attachment in list(self._attachments.values()):
            attachment.bar(error)

    def unfinished(self) -> list[Attachment]:
        """Send what is pending; what still waits to be sent or confirmed."""
        return [each for each in list(self._attachments.values()) if each.finish()]

    def check_loop(self) -> None:
        """Raise `Misuse("other-loop")` in any loop but this connection's own, and in a thread that runs none: nobody
        would be woken there.
        """
        check_loop(self.loop, "this", "connect")

    def say_lost(self, why: str) -> None:
        """Say what the node has not confirmed, each loss once, where nobody can finish this any more; in any thread."""
        self.losses.say(list(self._attachments.values()), why)

    def take_losses(self) -> list[str]:
        """What the node had not confirmed, in words, and nobody was told of; somebody is now that this is closed."""
        connections.discard(self)
        return self.losses.take()

    async def _keep_to_the_end(self) -> None:
        try:
            await self._keep()
        except asyncio.CancelledError:
            if self.failure is None:
                await self._end_alone()
            raise
        except Exception as error:  # noqa: BLE001  # it is said, whatever it is
            # Nobody makes another link now: whoever waits is told.
            self._end(Unavailable("link-lost", f"this client cannot go on: {error!r}"))
            self.loop.call_exception_handler({"message": "no further link is made", "exception": error})

    async def _end_alone(self) -> None:
        """Send what is pending without whoever closes this: he was cancelled, or nobody does, and the loop is about to
        end, and waits for its tasks.
        """
        is_finished = False
        while not is_finished:
            keeper = self.loop.create_task(self._keep_on())
            try:
                await finished(self.unfinished)
                is_finished = True
            except asyncio.CancelledError:  # of the loop's end, where this is still needed
                if self.failure is not None:
                    raise
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
        if self._why_alone:
            self.say_lost(self._why_alone)
        if self._closed is not None:
            self._shut(self._closed)

    async def _keep_on(self) -> None:
        if self._socket is not None:
            await self._outcome.ended.wait()
        await self._keep()

    def _end(self, error: VeredusError) -> None:
        self.failure = error
        for attachment in list(self._attachments.values()):
            attachment.fail(error)
        self._attachments.clear()
        self._channels.clear()
        self._requests.end(error)
        refuse(self._opened, error)
        if self.losses.are_told:
            connections.discard(self)

    def forbid(self, error: VeredusError) -> None:
        """Refuse every further use with this, and touch nothing: the loop belongs to another process."""
        self.failure = error
        connections.discard(self)
        for attachment in list(self._attachments.values()):
            attachment.forbid(error)

    async def _keep(self) -> None:
        """Keep a link up, until the connection is closed or a node refuses it for good."""
        delay_s, tried, fault_count = BACKOFF_S, 0, 0
        refused_since: float | None = None
        while True:
            address = self.settings.addresses[tried % len(self.settings.addresses)]
            began_s = time.monotonic()
            outcome = await self._live(address)
            error = outcome.error
            # Where a node was, another server may answer while it is gone: one that stands before it, for example.
            is_elsewhere = error is not None and error.code == STRANGER and self.welcome is not None
            is_fault = error is not None and error.code not in TRANSIENT and not is_elsewhere
            fault_count = fault_count + 1 if is_fault else 0
            is_hopeless = not outcome.is_welcome or fault_count >= FAULT_COUNT_MAX
            if error is not None and is_fault and (is_hopeless or error.code in PROVED_NO_MORE):
                self._end(error)
                return
            if outcome.is_welcome and not is_fault:
                delay_s = BACKOFF_S if time.monotonic() - began_s >= STEADY_S else min(delay_s, WELCOME_BACKOFF_S_MAX)
                await asyncio.sleep(delay_s * _dice.random())
                delay_s *= 2
                continue
            tried += 1
            refused_since = self._refused_since(refused_since, outcome)
            if refused_since is not None and time.monotonic() - refused_since >= self.settings.refused_s:
                self._end(self._nobody_there(self.settings.refused_s))
                return
            if tried % len(self.settings.addresses) == 0:
                left_s = inf if refused_since is None else refused_since + self.settings.refused_s - time.monotonic()
                await asyncio.sleep(min(delay_s * _dice.uniform(0.5, 1.0), left_s))
                delay_s = min(2 * delay_s, BACKOFF_S_MAX)

    def _refused_since(self, since: float | None, outcome: Outcome) -> float | None:
        """Since when every address has refused the first link; None where one did not, or there was one."""
        if self.welcome is not None or not outcome.is_nobody_there:
            return None
        return time.monotonic() if since is None else since

    def _where(self) -> str:
        return ", ".join(map(str, self.settings.addresses))

    def _unreachable(self, reason: str) -> Unavailable:
        where = self._where()
        reason = reason.removeprefix(f"{where}: ")
        return Unavailable("unreachable", f"no node answered at {where}: {reason}", addresses=where)

    def _nobody_there(self, tried_s: float) -> Unavailable:
        return self._unreachable(nobody_at(self.settings.addresses, tried_s))

    async def _live(self, address: Address) -> Outcome:
        """One link, from connecting to its end."""
        outcome = self._outcome = Outcome(address)
        link = self._link = ClientLink(LINK, ClientSettings(self.settings.client, self.settings.token))

        def hear(event: object) -> None:
            # A socket that was given up may tell its end late: that says nothing of the link that is there by then.
            if self._link is link:
                if type(event) is LinkOpened:
                    outcome.opened_s = time.monotonic()
                self.handle(event)

        try:
            opened = await open_socket(address, self.settings.tls, hear)
        except (OSError, TimeoutError) as error:
            outcome.error = error_of_opening(error, address, is_first=self.welcome is None)
            self._reason = outcome.error.message
            self._link = None
            self._sends.clear()
            outcome.is_nobody_there = isinstance(error, ConnectionRefusedError | FileNotFoundError)
            return outcome
        if self._link is not link:
            opened.close()
            return outcome
        self._socket = opened
        self._flush()
        while not outcome.ended.is_set():
            try:
                async with asyncio.timeout(TICK_S):
                    await outcome.ended.wait()
            except TimeoutError:
                due = self._link.deadline() if self._link is not None else None
                if due is not None and due <= time.monotonic_ns():
                    self.handle(DeadlineReached())
        if opened.refusal is not None and not outcome.is_welcome:
            outcome.error = Refused(opened.refusal.code, f"{address}: {opened.refusal.message}")
        return outcome

    # ── the link's engine ────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: object) -> None:
        """Give the link one fact, and carry out what follows."""
        link = self._link
        if link is None:
            return
        effects = link.handle(event, read_clocks())
        try:
            self._carry_out(effects)
        except BaseException:
            # What follows would be missing, perhaps the link's end: it begins anew.
            if self._link is link:
                self.break_link("this client could not carry out what the node said")
            raise
        if self._sends and not self._is_send_scheduled:
            self._is_send_scheduled = True
            self.loop.call_soon(self._flush)

    def break_link(self, reason: str) -> None:
        """End the link, and begin anew."""
        if self._link is not None:
            if self._socket is not None:
                self._socket.abort()
            self._lose("link-lost", reason)

    def _carry_out(self, effects: Sequence[object]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._sends.extend(effect.buffers)  # type: ignore[attr-defined]
            elif kind in TOLD:
                attachment = self._channels.get(effect.channel)  # type: ignore[attr-defined]
                if kind is TellClosed:
                    self._channels.pop(effect.channel, None)  # type: ignore[attr-defined]
                if attachment is not None:
                    attachment.take(effect)  # type: ignore[arg-type]
                elif kind is TellMessage and effect.channel == 0:  # type: ignore[attr-defined]
                    self._requests.take(effect.message)  # type: ignore[attr-defined]
            else:
                self._do(effect)

    def _do(self, effect: object) -> None:
        match effect:
            case TellWelcome(welcome):
                self._become_open(welcome)
            case TellLinkClosed(code, message):
                self._lose(code, message)
            case CloseLink():
                self._flush()
                if self._socket is not None:
                    self._socket.close()
            case Note(_, event, fields):
                self._reason = f"{event} {fields}"

    def _flush(self) -> None:
        self._is_send_scheduled = False
        if self._sends and self._socket is not None:
            sends, self._sends = self._sends, []
            self._socket.send(sends)

    def _become_open(self, welcome: m.Welcome) -> None:
        self.welcome = welcome
        if self._socket is not None:
            size_max = ClientSettings().frame_size_max
            self._socket.parser.size_max = min(welcome.frame_size_max + DELIVER_SLACK_SIZE, size_max)
            self._socket.parser.check_head = None if self._link is None else self._link.check_head
        self._outcome.is_welcome = True
        for attachment in list(self._attachments.values()):
            self.begin(attachment)
        self._requests.begin()
        self.tell_link(True)
        self._log.tell_back(self._where())
        if not self._opened.done():
            self._opened.set_result(None)

    def _lose(self, code: str, message: str) -> None:
        if self._outcome.is_welcome:
            self._reason = message
            self.tell_link(False)
            if self.failure is None:
                self._log.tell_lost(self._where(), message)
        elif code == "link-lost" and self._outcome.address is not None:
            self._reason = said_of_silence(self._outcome.address, f"before an answer came, {message}")
        elif code == "greeting-timeout":
            self._reason = self._why()
        else:
            self._reason = message = f"{self._outcome.address}: {message}"
        kind = Unavailable if code in TRANSIENT else Refused
        self._outcome.error = kind(code, message)
        self._link, self._socket = None, None
        self._sends.clear()
        self._channels.clear()
        self._requests.lose()
        for attachment in list(self._attachments.values()):
            attachment.lose()
        self._outcome.ended.set()

    # ── channels ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        """Whether there is a link."""
        return self._link is not None and self._link.is_open

    def attach(self, attachment: Attachment) -> None:
        """Let an attachment hang here; it begins when there is a link. Raises what ended the connection."""
        if (failure := self.failure or self._closed) is not None:
            raise failure.again()
        if self.is_open:
            attachment.begin()
        self._attachments[id(attachment)] = attachment

    def begin(self, attachment: Attachment) -> None:
        """Let it ask for a channel, if there is a link yet; it fails if it cannot have one."""
        if self.is_open:
            try:
                attachment.begin()
            except Misuse as error:
                attachment.fail(error)

    def detach(self, attachment: Attachment, channel: int) -> None:
        """Let it hang there no more; its channel, if it has one, is closed."""
        self._attachments.pop(id(attachment), None)
        if self._channels.get(channel) is attachment:
            del self._channels[channel]
            self.handle(CloseRequested(channel))

    def open_channel(self, attachment: Attachment, opening: Opening) -> int:
        """Ask for a channel; the answer goes to the attachment. Raises `Misuse("too-many-channels")`."""
        if self._link is None:
            raise Misuse("not-open", "the connection to the node is lost at the moment")
        channel = self._link.free_channel()
        self._channels[channel] = attachment
        self.handle(OpenRequested(channel, opening))
        return channel

    def call_later(self, delay_s: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `then` in a while."""
        return self.loop.call_later(delay_s, then)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, verb: str, **arguments: Any) -> Any:
        """The answer to one request, as `Requests.ask` has it."""
        self.check_loop()
        if self.failure is not None:
            raise self.failure.again()
        return await self._requests.ask(verb, arguments, self.settings.timeout_s)

    def _ask_link(self, request: m.Request) -> bool:
        if is_open := self.is_open:
            self.handle(MessageRequested(0, request))
        return is_open

    def _why(self) -> str:
        """Why there is no link yet."""
        outcome = self._outcome
        if outcome.address is None or outcome.opened_s is None or outcome.is_welcome or outcome.error is not None:
            return self._reason
        silent_s = time.monotonic() - outcome.opened_s
        return said_of_silence(outcome.address, f"no answer came in {silent_s:.3g} s")

    def describe(self) -> tuple[str, str]:
        """Where the node is looked for, and why there is no link, "" where there is one."""
        where = self._where()
        if self.failure is not None:
            return where, self._why_at_end
        return where, "" if self.is_open else self._why().removeprefix(f"{where}: ")


def _closed() -> Misuse:
    return Misuse("closed", "this connection was closed")
