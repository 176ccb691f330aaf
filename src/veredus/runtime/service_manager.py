"""What a service manager is told of a process of ours: datagrams to the socket that NOTIFY_SOCKET names.

    start: STATUS=recovering…, again for each second ─► READY=1
    SIGHUP: RELOADING=1 ─► READY=1, taken up or not
    stop: STOPPING=1

While it recovers or stops it asks for more time as well: a start that goes on is not ended, however long the journal
is. A manager that does not listen, or listens slowly, costs the process next to nothing, and never fails it.
Source: sd_notify(3).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from .logs import Logger

VARIABLE = "NOTIFY_SOCKET"
PROGRESS_NS = 1_000_000_000
PATIENCE_S = 300
"""How long one step of a start may take: that is mostly reading one segment and replaying it."""
END_S = 10
"""How long the rest of a stop may take."""
_SEND_S = 0.1
_MIB = 1 << 20


class ServiceManager:
    """Tells one service manager, or nobody, how the process is; called on one thread, which it may hold for 0.1 s."""

    def __init__(self, address: str = "", clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`address` is that of NOTIFY_SOCKET: a path, or `@` and a name in the abstract namespace; "" for nobody.

        `clock_ns` is the machine's monotonic clock.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._clock_ns = clock_ns
        self._next_progress_ns = 0
        self._read_size = 0

    def reading(self, name: str, size: int) -> None:
        """Recovery reads so many bytes of a file of the journal now; told at most once a second."""
        now_ns = self._clock_ns()
        if self._address and now_ns >= self._next_progress_ns:
            self._next_progress_ns = now_ns + PROGRESS_NS
            status = f"STATUS=recovering: reading {name}, {self._read_size // _MIB} MiB read so far"
            self._tell(status, _more_time(PATIENCE_S))
        self._read_size += size

    def serving(self, addresses: Mapping[str, str], refused: str = "") -> None:
        """The process serves at these addresses, by listener; `refused` is why the last reload changed nothing."""
        where = ", ".join(f"{name} {address}" for name, address in addresses.items())
        self._tell("READY=1", f"STATUS=serving: {where}{refused and f'; the last reload changed nothing: {refused}'}")

    def reloading(self) -> None:
        """Settings are read again; `serving` follows."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={self._clock_ns() // 1000}")

    def stopping(self, within_s: float) -> None:
        """The process finishes the work in progress and closes its journal, which takes up to `within_s`."""
        self._tell("STOPPING=1", "STATUS=stopping", _more_time(within_s + END_S))

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        told = "\n".join(line.replace("\n", " ") for line in lines).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_S)
                sender.sendto(told, self._address)
        except (OSError, ValueError) as error:
            Logger().warning("service-manager-not-told", told=lines[0], reason=str(error))


def _more_time(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"
