"""What one call of the command line costs, all in all: `python -m benchmarks.micro.commands`.

A server and a proxy run meanwhile, so that each call does what it is for. CPU is what the process took in user and
system time, the least and the median of many calls; `python -c pass`, beside it, is what no call can do without. What
others do on the machine adds to CPU too: the aim is 0.2 s on one that is quiet.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

CALLS_COUNT: Final = 15
READY_S: Final = 30.0
VEREDUS: Final = [sys.executable, "-m", "veredus"]
SETTINGS: Final = ("listen.zeromq=", "listen.metrics=", "listen.unix=", "topics.period=200ms")


def cpu_of(command: list[str], environment: dict[str, str]) -> float:
    """Seconds of CPU that a call took. Raises `CalledProcessError` where it failed."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write(b"one line\n")
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def free_addresses(count: int) -> list[str]:
    """Addresses on which nobody listens at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def wait_until_it_works(command: list[str], environment: dict[str, str]) -> None:
    """Call until the call succeeds, which also compiles what it imports. Raises `CalledProcessError` at last."""
    until_s = time.monotonic() + READY_S
    while True:
        try:
            cpu_of(command, environment)
            return
        except subprocess.CalledProcessError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def report(directory: Path) -> str:
    """A Markdown table of the calls."""
    # Modules that are compiled at every start, as where nothing may be written, are no part of what is measured.
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(directory / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    proxy, server, node = free_addresses(3)
    topics = [*VEREDUS, "topics", "--id", "alice", "--proxy", proxy, "--directory", str(directory / "clients")]
    calls = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "veredus --help": [*VEREDUS, "--help"],
        "veredus topics subscribe": [*topics, "subscribe", "t"],
        "veredus topics put": [*topics, "put", "t"],
        "veredus topics get": [*topics, "get", "t"],
        "veredus topics show": [*topics, "show", "-a", f"veredus://{node}"],
        "veredus pub": [*VEREDUS, "pub", "s", "-a", f"veredus://{node}"],
    }
    flags = [flag for text in (*SETTINGS, f"topics.proxies={proxy}") for flag in ("--set", text)]
    serve = ["serve", "--directory", str(directory / "node"), "--tcp", node, "--set", f"topics.listen={server}"]
    processes = [
        subprocess.Popen([*VEREDUS, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for arguments in (["proxy", "--listen", proxy, "--set", "topics.period=200ms"], [*serve, *flags])
    ]
    try:
        lines = ["| call | least, s | median, s |", "|---|--:|--:|"]
        for command in calls.values():
            wait_until_it_works(command, environment)
        for name, command in calls.items():
            taken = sorted(cpu_of(command, environment) for _ in range(CALLS_COUNT))
            lines.append(f"| {name} | {taken[0]:.3f} | {statistics.median(taken):.3f} |")
        return "\n".join(lines)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def main() -> None:
    """Print the table."""
    directory = Path(tempfile.mkdtemp(prefix="veredus-commands-"))
    try:
        print(report(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
