"""Lives of one client, each a process that is killed at a step of its own on the disk, as this script is told.

A process that has imported everything forks one for each line of JSON on its standard input, says the child's number,
and how it ended. A life subscribes, puts what was not reported yet, and gets all there is; it writes down what it was
told at once. Its steps are its writes and syncs. Modes:

    before, torn, after   it kills itself at the step: before it, with half a write, behind it
    told                  it writes down each step, too
    put-at-once           it kills itself as soon as it has written down the first put
    put, got              it kills itself a while after it was told of the first put, or given the first message
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

strike: dict[str, Any] = {"step": 0, "mode": "", "log": -1}
step_count = 0


def write_down(log: int, *words: str) -> None:
    os.write(log, (" ".join(words) + "\n").encode())


def struck(call: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(descriptor: int, *rest: Any) -> Any:
        global step_count
        step_count += 1
        if step_count == strike["step"]:
            if strike["mode"] == "after":
                call(descriptor, *rest)
            if strike["mode"] == "torn" and rest:
                data = b"".join(map(bytes, rest[0]))
                call(descriptor, [data[: len(data) // 2]], *rest[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(descriptor, *rest)
        if strike["mode"] == "told":
            write_down(strike["log"], "step", call.__name__)
        return result

    return stepped


# The system's calls, not ours; before anything has them by name.
os.pwritev = struck(os.pwritev)
os.fdatasync = struck(os.fdatasync)
os.fsync = struck(os.fsync)

import asyncio  # noqa: E402

from veredus.kernel.errors import Misuse, Unavailable  # noqa: E402
from veredus.topics import AsyncClient  # noqa: E402


async def die_at(mode: str) -> None:
    if strike["mode"] == mode:
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


def told_key(body: str) -> bytes:
    """Each put has a key, which ends where its body has a colon, but for those that are to be known by their bodies."""
    return b"" if body == "tick" else body.partition(":")[0].encode()


async def live(proxies: Sequence[str], directory: str, bodies: Sequence[str], log: int) -> None:
    async with AsyncClient("alice", proxies=proxies, directory=directory, answer_s=0.5) as client:
        await client.subscribe("t")
        for body in bodies:
            while True:
                try:
                    await client.put("t", body.encode(), key=told_key(body))
                    break
                except Unavailable:
                    continue
                except Misuse as error:
                    write_down(log, error.code, body)
                    return
            write_down(log, "put", body)
            if strike["mode"] == "put-at-once":
                os.kill(os.getpid(), signal.SIGKILL)
            await die_at("put")
            message = await client.get("t")
            if message is not None:
                write_down(log, "got", message.id, message.body.decode())
                await die_at("got")
        while (message := await client.get("t")) is not None:
            write_down(log, "got", message.id, message.body.decode())
    write_down(log, "end", str(step_count))


def main() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        child = os.fork()
        if child == 0:
            log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            strike.update(step=told["step"], mode=told["mode"], log=log)
            write_down(log, "life")
            asyncio.run(live(told["proxies"], told["directory"], told["bodies"], log))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
