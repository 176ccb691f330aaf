"""A proxy of the topic service: its engine, its sockets, and a timer. Source: seed 000, section 3."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused, VeredusError, ending_of, words_of
from veredus.kernel.events import DeadlineReached
from veredus.node.exposure import access_of
from veredus.node.handed_on import AT_ONCE_MAX
from veredus.node.settings import NodeSettings
from veredus.protocols.topics.messages import message_size_max
from veredus.protocols.topics.proxy import Event, Proxy, ProxySettings
from veredus.streams.rights import ANONYMOUS

from .askers import Askers
from .audit import AuditedLogger, audit_log_of
from .binding import bind_tcp
from .clocks import read_clocks
from .files import check_tokens
from .hearing import once_read
from .logs import log_loop_failures, say_held_back
from .peers import Peers
from .reloads import Reloads
from .renewal import Reread, changed_paths, say_reloaded
from .security import tokens_of
from .service_manager import ServiceManager
from .stopping import stop_asked
from .topics_gate import TopicsGate
from .topics_limits import TopicsLimits
from .topics_sockets import PROXY_MARK, TopicsSockets

TOPICS = "topics"
"""Its listener, as the section of its settings is called."""
_LOOK_S = 0.01
_TELL_S = 1.0
_RENEWED = ("security.rules", "security.tokens")


class TopicsProxy:
    """Owns a proxy's sockets, and drives its engine on the running loop; made and closed on that loop."""

    def __init__(
        self,
        settings: ProxySettings,
        address: str,
        limits: TopicsLimits | None = None,
        node: NodeSettings | None = None,
        reread: Reread | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        """Listen at `address` ("127.0.0.1:5551"; port 0 takes any), which is the proxy's id where it has none.

        Who may come is as the settings `node` say, or everybody; `reread` gives those of a reload. `manager` is told
        how the proxy is. Raises `Unavailable("port-in-use")`, and `Refused`: `bad-key`, `bad-tokens`.
        """
        self._manager = manager or ServiceManager()
        self._log = AuditedLogger(audit_log_of(node))
        self._loop = asyncio.get_running_loop()
        log_loop_failures(self._loop, self._fail)
        self._failed: asyncio.Future[BaseException] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._telling = self._loop.call_later(_TELL_S, self._tell_held_back)
        self._is_hurried = self._is_stopping = False
        self._node = node
        self._reread = reread
        self._tokens = None if node is None else tokens_of(node)
        self._unproven = ANONYMOUS if node is None else access_of(node).unproven
        self._askers = Askers(self._loop, lambda: self._tokens)
        self._gate = (
            None if node is None else TopicsGate(node, self._askers, lambda: self._tokens, lambda: self._unproven)
        )
        size_max = message_size_max(settings.body_size_max)
        limits = limits or TopicsLimits()
        self._accounts = limits.accounts()
        self._peers = Peers(self._loop)
        self._sockets = TopicsSockets(
            bind_tcp(address, "topics.listen"),
            size_max,
            self._tell,
            limits=limits,
            gate=self._gate,
            accounts=self._accounts,
            log=self._log,
            peers=self._peers,
            mark=PROXY_MARK,
            at_once_max=min(AT_ONCE_MAX, limits.requests_max),
        )
        self.address = self._sockets.address
        self.engine = Proxy(settings if settings.proxy_id else replace(settings, proxy_id=self.address))

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain and close; a second one later waits for no answer any more.

        Raises what ended the proxy otherwise.
        """

        def hurry() -> None:
            self._is_hurried = True

        asked = stop_asked(self._loop, hurry)
        Reloads(self._loop, self.reload).begin()
        self._tell(DeadlineReached())  # from now on it waits for what servers announce
        self._log.info("proxy-ready", address=self.address)
        self._manager.serving({TOPICS: self.address})
        waiting = asyncio.ensure_future(asked.wait())
        try:
            await asyncio.wait((waiting, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if not self._failed.done():
                await self.drain()
            if self._failed.done():
                raise self._failed.result()
        finally:
            waiting.cancel()
            self.close()
        self._log.info("proxy-stopped")

    def reload(self) -> None:
        """Read the settings again, and take up which tokens there are and what the rules say; the rest is named.

        Whose token or key is not there any more is let go. What is read and not right changes nothing.
        """
        if self._node is None or self._is_stopping:
            return
        self._manager.reloading()
        self._manager.serving({TOPICS: self.address}, self._take_up(self._node))

    def _take_up(self, before: NodeSettings) -> str:
        """Why nothing was taken up, or ""."""
        try:
            wanted = before if self._reread is None else self._reread()
            if wanted.security.tokens:
                check_tokens(wanted.security.tokens)
            unproven = access_of(wanted).unproven
        except Refused as refused:
            self._log.error("settings-not-read", code=refused.code, reason=refused.message)
            return refused.message
        changed = changed_paths(before, wanted)
        if "security.tokens" in changed:
            self._tokens = tokens_of(wanted)
        self._node, self._unproven = wanted, unproven
        say_reloaded(self._log, changed, _RENEWED)
        return ""

    async def drain(self) -> None:
        """Take no question any more, and wait until those on their way were answered, which the engine does in time."""
        self._is_stopping = True
        self._manager.stopping(self.engine.settings.answer_ns * (self.engine.settings.retries_max + 1) / 1e9)
        self._sockets.pause_reading()
        self._log.info("proxy-stopping", waiting=self.engine.peer_count)
        while self.engine.peer_count and not self._is_hurried:
            if self._failed.done():
                return
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Close every socket; what was answered has half a second to leave."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._telling.cancel()
        self._sockets.close()
        self._askers.close()

    def _tell_held_back(self) -> None:
        say_held_back()
        # Who has paid for what it used is forgotten.
        self._accounts.quotas.rested(read_clocks())
        fault = "" if self._gate is None else self._gate.fault()
        if fault:
            self._log.error("tokens-not-read", reason=fault)
        self._telling = self._loop.call_later(_TELL_S, self._tell_held_back)

    def _fail(self, failure: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_result(failure)
            self._log.error("proxy-failed", reason=words_of(failure))

    def _tell(self, event: Event) -> None:
        if self._failed.done():
            return
        try:
            for effect in self.engine.handle(event, read_clocks()):
                if isinstance(effect, Note):
                    self._log.say(effect.level, effect.event, self._peers.located(effect.fields))
                else:
                    self._sockets.carry_out(effect)
        except BaseException as error:
            failure = ending_of(error)
            self._fail(failure)
            if isinstance(failure, VeredusError):
                return
            raise
        # Nothing is due before what the timer was set for.
        if self._timer is None:
            self._wake_in_time()

    def _wake_in_time(self) -> None:
        at_ns = self.engine.deadline()
        if at_ns is not None:
            delay_s = max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        once_read(self._loop, self._judge)

    def _judge(self, heard_ns: int) -> None:
        if self._timer is not None and self._sockets.has_unread_answers and self._is_early(heard_ns):
            # What waits here is no server's silence.
            self._loop.call_soon(self._judge, heard_ns)
        elif self._timer is not None:
            self._timer = None
            self._tell(DeadlineReached(heard_ns))

    def _is_early(self, heard_ns: int) -> bool:
        """Whether what had arrived by then may be waited for yet: who never ceases to answer stops no clock."""
        return time.monotonic_ns() - heard_ns < self.engine.settings.answer_ns
