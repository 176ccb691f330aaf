"""Access is withdrawn as operators do it, by commands and signals: a `veredus sub` ends, and another goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.processes import Child, ended
from tests.runtime.authority import Authority
from tests.system.secured import Secured, reload_by_command
from veredus.cli.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.attack]

VEREDUS = [sys.executable, "-m", "veredus"]
RULES = (("desk-1", "trades"), ("desk-2", "trades"), ("operator", ">"))


class Withdrawing(Secured):
    """A secured node, its operator, and two desks that subscribe by the command line."""

    def __init__(self, directory: Path) -> None:
        """Not started yet; tokens are made by command."""
        authority = Authority(directory / "authority")
        authority.sign("node", "/CN=localhost", "IP:127.0.0.1")
        super().__init__(directory, authority, {"TLS_REVOKED": str(authority.revoke())})
        self.write(RULES)
        self.certificates = {who: authority.sign(who, f"/CN={who}") for who in ("desk-1", "desk-2")}
        self.files = {who: directory / f"{who}.token" for who in ("desk-1", "desk-2", "operator")}
        for who, file in self.files.items():
            file.write_text(self.run("token", "add", who, "--file", str(self.tokens)).stdout)
            file.chmod(0o600)
        self._ending = ExitStack()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """How a command ended, which has to end well."""
        done = ended([*VEREDUS, *words])
        assert done.returncode == 0, done.stderr
        return done

    def publish(self, body: str) -> None:
        with self.by_token(self.files["operator"].read_text().strip()) as node, node.publisher("trades") as publisher:
            publisher.wait(publisher.publish("k", body), timeout_s=20)

    def subscriber(self, who: str, by: str) -> Child:
        """`veredus sub`, which has printed what there is."""
        assert self.authority is not None
        if by == "certificate":
            certificate, key = self.certificates[who]
            shown = [
                "--certificate",
                certificate,
                "--certificate-key",
                key,
                "-a",
                f"veredus+tls://127.0.0.1:{self.tls_port}",
            ]
            shown += ["--authorities", str(self.authority.certificate)]
        else:
            shown = ["--token-file", str(self.files[who]), "-a", self.served.address]
        command = [*VEREDUS, "sub", "trades", "--follow", *shown]
        process = self._ending.enter_context(Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n", self.served.said()
        return process

    def end(self) -> None:
        self._ending.close()
        self.served.kill()

    # ── what an operator does ────────────────────────────────────────────────────────────────────────────────────────

    def remove_token(self) -> None:
        listed = self.run("token", "ls", "--file", str(self.tokens), "-o", "jsonl").stdout.splitlines()
        (line,) = (line for line in listed if "desk-1" in line)
        self.run("token", "rm", msgspec.json.decode(line)["id"], "--file", str(self.tokens))

    def change_rules(self) -> None:
        self.write(RULES[1:])
        assert reload_by_command(self).returncode == 0

    def revoke_certificate(self) -> None:
        assert self.authority is not None
        assert self.served.process is not None
        self.authority.revoke("desk-1")
        self.served.process.send_signal(signal.SIGHUP)


@pytest.fixture
def withdrawing(tmp_path: Path) -> Iterator[Withdrawing]:
    withdrawing = Withdrawing(tmp_path)
    yield withdrawing
    withdrawing.end()


@pytest.mark.parametrize(
    ("by", "withdraw", "code"),
    [
        ("token", Withdrawing.remove_token, "revoked"),
        ("token", Withdrawing.change_rules, "forbidden"),
        ("certificate", Withdrawing.revoke_certificate, "revoked"),
    ],
)
def test_a_subscriber_whose_access_is_withdrawn_by_command_ends_and_says_why_and_another_goes_on(
    withdrawing: Withdrawing, by: str, withdraw: Callable[[Withdrawing], None], code: str
) -> None:
    withdrawing.start()
    withdrawing.publish("before")
    gone, kept = (withdrawing.subscriber(who, by) for who in ("desk-1", "desk-2"))
    withdraw(withdrawing)
    _, said = gone.communicate()
    assert (gone.returncode, f"[{code}]" in said.decode()) == (Exit.REFUSED, True), said
    withdrawing.publish("after")
    assert kept.stdout is not None
    assert kept.stdout.readline() == b"after\n"


def test_a_publisher_at_an_idle_pipe_ends_as_its_token_is_removed(withdrawing: Withdrawing) -> None:
    withdrawing.start()
    shown = ["--token-file", str(withdrawing.files["desk-1"]), "-a", withdrawing.served.address]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Child([*VEREDUS, "pub", "trades", "--source", "tail", *shown], **pipes) as publishing:
        assert publishing.stdin is not None
        assert publishing.stderr is not None
        publishing.stdin.write(b"before\n")
        publishing.stdin.flush()
        with withdrawing.by_token(withdrawing.files["operator"].read_text().strip()) as node:
            subscription = node.subscribe("trades")
            assert next(iter(subscription)).body == b"before"
            subscription.close()
        withdrawing.remove_token()
        assert publishing.wait(20) == Exit.REFUSED
        assert b"[revoked]" in publishing.stderr.read()
