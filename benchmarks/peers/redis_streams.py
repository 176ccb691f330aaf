"""Redis Streams with an append-only file that is synced before every reply."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import Broker, free_port, serve
from benchmarks.contender import IDLE_LIMIT_S
from benchmarks.load import Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

PIPELINE_COUNT: Final = 1_000
READ_COUNT: Final = 1_000
_STREAM: Final = "bench"
_GROUP: Final = "bench"


@dataclass(frozen=True, slots=True)
class RedisStreams:
    """One `redis-server`, XADD in pipelines, and one of two ways to read."""

    name: str
    mode: str
    is_grouped: bool
    scenarios: tuple[str, ...] = ("throughput-100", "throughput-1k", "latency-100")

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        if shutil.which("redis-server") is None:
            return "the program redis-server (make bench-peers)"
        return None if importlib.util.find_spec("redis") else "the Python package redis (pip install 'redis[hiredis]')"

    def versions(self) -> Mapping[str, str]:
        """The versions of the server, the client and its parser."""
        words = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()
        server = next(word[2:] for word in words if word.startswith("v="))
        parser = importlib.metadata.version("hiredis") if importlib.util.find_spec("hiredis") else "absent"
        return {"redis-server": server, "redis-py": importlib.metadata.version("redis"), "hiredis": parser}

    def start(self, workdir: Path, scenario: Scenario) -> Broker:
        """Start a server without snapshots or rewrites of its file, which would only disturb it."""
        import redis

        port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(workdir),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": "0",
        }
        argv = ["redis-server"]
        for name, value in settings.items():
            argv += [f"--{name}", value]
        broker = serve(argv, port, workdir)
        try:
            connection = redis.Redis(port=port)
            connection.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
            connection.close()
        except BaseException:
            broker.stop()
            raise
        return broker

    def publisher(self, address: str, scenario: Scenario) -> RedisPublisher:
        """The end that adds."""
        return RedisPublisher(address)

    def subscriber(self, address: str, scenario: Scenario) -> RedisSubscriber:
        """The end that reads."""
        return RedisSubscriber(address, self.is_grouped)


class RedisPublisher:
    """Adds in pipelines in bulk, and one blocking call at a time when paced; a reply is the receipt."""

    def __init__(self, address: str) -> None:
        """Publish to the server at `address`."""
        self._address = address

    def open(self) -> None:
        """Connect."""
        self._redis = _connect(self._address)

    def run(self, load: Load) -> int | None:
        """Add everything; every reply is an entry's id, or has been raised."""
        if load.scenario.is_paced:
            return sum(self._redis.xadd(_STREAM, {"b": body}) is not None for body in load.paced())
        receipts_count = 0
        for chunk in load.chunks(PIPELINE_COUNT):
            pipeline = self._redis.pipeline(transaction=False)
            for body in chunk:
                pipeline.xadd(_STREAM, {"b": body})
            receipts_count += len(pipeline.execute())
        return receipts_count

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()


class RedisSubscriber:
    """Reads up to `READ_COUNT` entries at a time, waiting for the first."""

    def __init__(self, address: str, is_grouped: bool) -> None:
        """Read from the server at `address`, with or without a consumer group."""
        self._address = address
        self._is_grouped = is_grouped
        self._last_id: Any = "0"

    def open(self) -> None:
        """Connect; both ways start at the stream's head."""
        self._redis = _connect(self._address)
        self._redis.ping()

    def run(self, witness: Witness) -> None:
        """Read, and acknowledge in a group, until all came or nothing more does."""
        while not witness.is_complete:
            entries = self._read_group() if self._is_grouped else self._read_plain()
            if not entries:
                return
            witness.take([fields[b"b"] for _, fields in entries])
            if self._is_grouped:
                self._redis.xack(_STREAM, _GROUP, *[entry_id for entry_id, _ in entries])

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()

    def _read_group(self) -> Sequence[tuple[bytes, dict[bytes, bytes]]]:
        return _entries(
            self._redis.xreadgroup(_GROUP, "subscriber", {_STREAM: ">"}, count=READ_COUNT, block=IDLE_LIMIT_S * 1000)
        )

    def _read_plain(self) -> Sequence[tuple[bytes, dict[bytes, bytes]]]:
        entries = _entries(self._redis.xread({_STREAM: self._last_id}, count=READ_COUNT, block=IDLE_LIMIT_S * 1000))
        if entries:
            self._last_id = entries[-1][0]
        return entries


def _connect(address: str) -> Any:
    import redis

    host, _, port = address.partition(":")
    # The socket must outlast a read that waits for its first entry.
    return redis.Redis(host=host, port=int(port), protocol=2, socket_timeout=2 * IDLE_LIMIT_S)


def _entries(reply: Any) -> Sequence[tuple[bytes, dict[bytes, bytes]]]:
    return reply[0][1] if reply else ()


def consumer_group() -> RedisStreams:
    """Reads as one consumer of a group, and acknowledges: the server keeps the cursor."""
    return RedisStreams(
        "redis-streams",
        f"`appendfsync always`; XADD in pipelines of {PIPELINE_COUNT} (one call a publication when paced); "
        f"XREADGROUP of up to {READ_COUNT} and one XACK for them",
        is_grouped=True,
    )


def plain_reader() -> RedisStreams:
    """Reads from where it stands, and keeps its place itself: the server writes nothing for a read."""
    return RedisStreams(
        "redis-streams-xread",
        f"`appendfsync always`; XADD in pipelines of {PIPELINE_COUNT} (one call a publication when paced); "
        f"XREAD of up to {READ_COUNT}, the subscriber's place kept in its memory only",
        is_grouped=False,
    )
