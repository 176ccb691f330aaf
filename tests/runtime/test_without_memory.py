"""A process that lacks memory says so, with a code and what to do, wherever it happens."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.processes import ended
from veredus.cli.exits import Exit
from veredus.kernel.errors import Unavailable, ending_of, words_of
from veredus.node.backlog import READ_SIZE_MAX
from veredus.protocols.topics.proxy import Proxy, ProxySettings
from veredus.runtime import sockets
from veredus.runtime.logs import log_loop_failures
from veredus.runtime.sockets import COPY_SIZE_MAX, ReadMemory
from veredus.runtime.topics_proxy import TopicsProxy

NODE = """
import os, sys
given = os.urandom
def urandom(size):
    if os.path.exists(sys.argv[1]):
        raise MemoryError
    return given(size)
os.urandom = urandom
from veredus.cli import main
main(["serve"])
"""
"""A node that lacks memory from when a file is there."""

ASK = """
import os, pathlib, subprocess, sys, threading, time, veredus
node = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
far = veredus.connect("unix://" + os.environ["VEREDUS_LISTEN_UNIX"], refused_s=20, timeout_s=20)
pathlib.Path(sys.argv[2]).touch()
threading.Thread(target=far.streams.create, args=("s",), daemon=True).start()
print(node.wait(20), flush=True)
os._exit(0)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    doors = {f"VEREDUS_LISTEN_{name}": "" for name in ("TCP", "ZEROMQ", "METRICS")}
    own = {"VEREDUS_NODE_DIRECTORY": f"{tmp_path}/journal", "VEREDUS_LISTEN_UNIX": f"{tmp_path}/socket"}
    return {**os.environ, **doors, **own, "VEREDUS_LOG_FORMAT": "json"}


def assert_told(said: str) -> None:
    assert "veredus: this process has no memory left (MemoryError): give it more" in said
    assert "[out-of-memory]" in said
    assert "Traceback" not in said


def test_a_node_that_lacks_memory_says_what_to_do_in_its_log_and_at_its_end(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = ended([sys.executable, "-c", ASK, NODE, str(tmp_path / "full")], env=environment)
    assert done.stdout.strip() == str(int(Exit.UNAVAILABLE)), done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["node-ready", "node-failed"]
    assert lines[-1]["reason"].endswith("[out-of-memory]")
    assert_told(done.stderr)


def test_a_node_that_lacks_memory_to_start_says_what_to_do(tmp_path: Path, environment: dict[str, str]) -> None:
    done = ended([sys.executable, "-c", NODE, str(tmp_path)], env=environment)
    assert done.returncode == Exit.UNAVAILABLE, done.stderr
    assert_told(done.stderr)


def test_a_proxy_that_lacks_memory_ends_with_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(*_: object) -> None:
        raise MemoryError("malloc of size 64 failed")

    async def story() -> None:
        proxy = TopicsProxy(ProxySettings(), "127.0.0.1:0")
        monkeypatch.setattr(Proxy, "handle", lack)
        proxy._tell(None)  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match=r"\(malloc of size 64 failed\)") as ended_by:
            await proxy.run()
        assert ended_by.value.code == "out-of-memory"

    asyncio.run(story())


def test_an_error_without_words_is_named_by_its_kind() -> None:
    assert (words_of(TimeoutError()), words_of(ValueError("no"))) == ("TimeoutError", "no")


def test_what_the_system_has_no_memory_for_has_the_same_code_and_anything_else_is_itself() -> None:
    told = ending_of(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert (type(told), getattr(told, "code", "")) == (Unavailable, "out-of-memory")
    for fault in (AssertionError(), OSError(errno.EIO, "Input/output error")):
        assert ending_of(fault) is fault


def test_without_memory_for_reads_what_comes_is_read_into_what_was_put_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(*_: object) -> None:
        raise MemoryError

    memory = ReadMemory()
    memory.offer()
    memory = ReadMemory()
    monkeypatch.setattr(sockets.np, "empty", lack)
    took = []
    for text in (b"one", b"two"):
        room = memory.offer()
        assert 0 < len(room) < COPY_SIZE_MAX, "it is copied, whatever comes"
        room[:3] = text
        took.append(memory.take(3))
    assert [bytes(one) for one in took] == [b"one", b"two"]
    monkeypatch.undo()
    assert len(memory.offer()) == READ_SIZE_MAX


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_lack_of_memory_that_nobody_caught_ends_the_process(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def fail(error: Exception) -> None:
        raise error

    ended_by: list[BaseException] = []
    loop = new_loop()
    log_loop_failures(loop, ended_by.append)
    for error in (ValueError("no"), MemoryError()):
        loop.call_soon(fail, error)
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert [getattr(error, "code", "") for error in ended_by] == ["out-of-memory"]
