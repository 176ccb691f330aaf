"""What is published or settled behind the end of the program: no thread sends it, so each call waits until it is known.

Handlers of `atexit` run there that were registered before `import veredus`, as that of `logging` often is.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

from veredus.delivery.cutting import Listed, Publications
from veredus.kernel.errors import Unavailable
from veredus.kernel.last import is_over
from veredus.kernel.octets import Octets

from .given import Attributes, EventTime
from .intake import Intake
from .loops import LoopThread
from .pending import finished

_intakes: WeakKeyDictionary[Intake, LoopThread] = WeakKeyDictionary()
"""Where each is emptied."""


class Finishing(Protocol):
    """What has something to send."""

    def finish(self) -> str:
        """Send what waits to be sent; what the node has not confirmed yet, in words, "" for nothing."""


class LateIntake(Intake):
    """An intake whose calls return when the stream has what they publish.

    Each looks in its turn whether its thread ends the program, and takes the long way for that: who is refused has
    published nothing.
    """

    __slots__ = ()

    def put(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> int:
        """As `Publisher.publish`. Raises `Unavailable("in-doubt")` as well."""
        number = super().put(key, body, attributes, event_time)
        self.confirm(number)
        return number

    def _put_publications(self, publications: Publications, size: int) -> int:
        number = super()._put_publications(publications, size)
        self.confirm(number)
        return number

    def _put_in_turn(self, publications: Publications, size: int) -> int:
        self.check_caller()
        return super()._put_in_turn(publications, size)

    def _become_open(self, run: Listed) -> None:
        super()._become_open(run)
        self.bar()


def watch(intake: Intake, thread: LoopThread) -> None:
    """See that this intake confirms what it takes, once the program has come to its end."""
    _intakes[intake] = thread
    if is_over():
        _become_late(intake, thread)


def confirm_from_now_on() -> None:
    """The program has come to its end."""
    for intake, thread in list(_intakes.items()):
        _become_late(intake, thread)


def wait_free() -> None:
    """What other threads are publishing gets its number before this returns."""
    for intake in list(_intakes):
        intake.wait_free()


def _become_late(intake: Intake, thread: LoopThread) -> None:
    intake.__class__ = LateIntake
    intake.check_caller = thread.check_caller
    intake.bar()


def finish(thread: LoopThread, what: Finishing) -> None:
    """Wait until the node has confirmed what there is to send. Raises `Unavailable("in-doubt")` when patience ends."""
    words = thread.run(partial(finished, what.finish))
    if words:
        raise Unavailable("in-doubt", f"the program ends, and the node has not confirmed {words}")
