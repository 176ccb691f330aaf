"""A proxy in a process of its own reads its settings again at SIGHUP, and goes on; so does its audit log."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.system.auditing import Records, wait_for
from tests.system.serving_topics import QUICK, ServedProxy
from veredus.runtime.security import add_token, remove_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]

SETTINGS = """
[security]
tokens = "{tokens}"
[[security.rules]]
principal = "*"
may = ["*"]
"""


class Reloaded:
    """Owns a proxy with a file of tokens, and the sockets of those who ask it."""

    def __init__(self, directory: Path) -> None:
        self.tokens, self.others = directory / "tokens", directory / "others"
        self.config = directory / "veredus.toml"
        self.write(self.tokens)
        self.records = Records(directory / "audit.jsonl")
        more = ("--config", str(self.config), "--set", f"audit.file={self.records.file}")
        self.proxy = ServedProxy(directory, *QUICK, *more)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def write(self, tokens: Path, more: str = "") -> None:
        self.config.write_text(SETTINGS.format(tokens=tokens) + more)

    def hang_up(self) -> None:
        """SIGHUP."""
        assert self.proxy.process is not None
        self.proxy.process.send_signal(signal.SIGHUP)

    def said(self, event: str) -> list[dict[str, object]]:
        return [line for line in self.proxy.said() if line["event"] == event]

    def is_answered(self, token: str) -> bool:
        """Whether who has this token comes in."""
        with self.context.socket(zmq.REQ) as asking:
            asking.linger = 0
            asking.plain_username, asking.plain_password = b"anybody", token.encode()
            asking.connect(f"tcp://{self.proxy.address}")
            asking.send(b"GET alice t -1\r\n\r\n")
            return bool(asking.poll(1_000))

    def end(self) -> None:
        self.context.destroy(linger=0)
        self.proxy.end()


@pytest.fixture
def reloaded(tmp_path: Path) -> Iterator[Reloaded]:
    reloaded = Reloaded(tmp_path)
    yield reloaded
    reloaded.end()


def test_a_proxy_takes_up_another_file_of_tokens_and_ends_whom_that_does_not_know(reloaded: Reloaded) -> None:
    alice, _ = add_token(reloaded.tokens, "alice")
    bob, _ = add_token(reloaded.others, "bob")
    reloaded.proxy.start()
    assert (reloaded.is_answered(alice), reloaded.is_answered(bob)) == (True, False)
    with reloaded.context.socket(zmq.DEALER) as kept:
        kept.linger = 0
        kept.plain_username, kept.plain_password = b"anybody", alice.encode()
        kept.connect(f"tcp://{reloaded.proxy.address}")
        kept.send_multipart([b"", b"GET alice t -1\r\n\r\n"])
        assert kept.poll(10_000)
        reloaded.write(reloaded.others)
        reloaded.hang_up()
        revoked = reloaded.records.wait("principal-revoked", principal="alice")
    assert (revoked["code"], revoked["listener"]) == ("revoked", "topics")
    assert reloaded.records.wait("settings-reloaded")["changed"] == ["security.tokens"]
    assert (reloaded.is_answered(alice), reloaded.is_answered(bob)) == (False, True)


def test_a_token_that_is_removed_ends_its_connections_to_a_proxy(reloaded: Reloaded) -> None:
    alice, line = add_token(reloaded.tokens, "alice")
    reloaded.proxy.start()
    with reloaded.context.socket(zmq.DEALER) as kept:
        kept.linger = 0
        kept.plain_username, kept.plain_password = b"anybody", alice.encode()
        kept.connect(f"tcp://{reloaded.proxy.address}")
        kept.send_multipart([b"", b"GET alice t -1\r\n\r\n"])
        assert kept.poll(10_000)
        remove_token(reloaded.tokens, line.id)
        reloaded.hang_up()
        reloaded.records.wait("principal-revoked", principal="alice")
    assert not reloaded.is_answered(alice)


def test_settings_that_are_not_right_change_nothing_of_a_proxy_and_those_that_need_a_restart_are_named(
    reloaded: Reloaded,
) -> None:
    alice, _ = add_token(reloaded.tokens, "alice")
    reloaded.proxy.start()
    reloaded.config.write_text("[security]\ntokens = 7\n")
    reloaded.hang_up()
    assert "tokens" in str(reloaded.records.wait("settings-refused", note="settings-not-read")["reason"])
    reloaded.write(reloaded.tokens.with_name("away"))
    reloaded.hang_up()
    wait_for(lambda: len(reloaded.records.all("settings-refused")) == 2, lambda: str(reloaded.proxy.said()))
    assert "there is no such file" in str(reloaded.records.all("settings-refused")[-1]["reason"])
    reloaded.write(reloaded.tokens, '[node]\nname = "other"\n')
    reloaded.hang_up()
    wait_for(lambda: bool(reloaded.said("settings-need-restart")), lambda: str(reloaded.proxy.said()))
    assert reloaded.said("settings-need-restart")[0]["settings"] == ["node.name"]
    assert reloaded.is_answered(alice)


def test_the_start_and_the_end_of_a_proxy_are_recorded(reloaded: Reloaded) -> None:
    add_token(reloaded.tokens, "alice")
    reloaded.proxy.start()
    assert reloaded.records.wait("node-started")["address"] == reloaded.proxy.address
    reloaded.proxy.stop()
    assert reloaded.proxy.process is not None
    assert reloaded.proxy.process.wait(20) == 0
    reloaded.records.wait("node-stopped")
