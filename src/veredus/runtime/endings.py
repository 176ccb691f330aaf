"""How the other end of a connection stands, without reading from it.

Who has written something and hung up looks by TCP like who has written all that it will, and reads on: both have sent a
FIN, and only an answer would tell them apart. So the second is served, and with it the first, but behind whoever is
there for certain (`Listener`). Who has reset the connection hears nothing any more.
Source: RFC 9293, section 3.6 (closing); poll(2), POLLRDHUP and POLLERR.
"""

from __future__ import annotations

import select
import socket

from veredus.kernel.symbol import Symbol


class Ending(Symbol):
    """What the other end has done: nothing yet, said that it writes no more, or reset the connection."""

    NONE = "none"
    WRITTEN = "written"
    RESET = "reset"


def ending_of(there: socket.socket) -> Ending:
    """How the other end of a connection has ended it, whatever of it was not read yet."""
    poll = select.poll()
    poll.register(there, select.POLLRDHUP)
    events = [event for _, event in poll.poll(0)]
    if not events:
        return Ending.NONE
    return Ending.RESET if events[0] & select.POLLERR else Ending.WRITTEN
