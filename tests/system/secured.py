"""A node that asks its peers who they are, with settings that a test changes while it runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import veredus
from tests.processes import ended, free_port, wait_until
from tests.runtime.authority import Authority
from tests.system.serving import ServedNode
from veredus.client.blocking import Node, connect
from veredus.runtime.security import client_context

RULE = """
[[security.rules]]
principal = "{}"
may = ["*"]
streams = ["{}"]
"""


class Secured:
    """A node with a file of settings, tokens and, where an authority is given, TLS."""

    def __init__(
        self, directory: Path, authority: Authority | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Not started; `settings` are VEREDUS_* variables without the prefix."""
        self.tokens = directory / "tokens"
        self.tokens.touch(0o600)
        self.settings = directory / "veredus.toml"
        self.authority = authority
        self.tls_port = free_port()
        self.served = ServedNode(directory / "journal", settings, environment={"VEREDUS_SETTINGS": str(self.settings)})
        self.write((("*", ">"),))

    def write(self, rules: tuple[tuple[str, str], ...], more: str = "") -> None:
        text = f'[security]\ntokens = "{self.tokens}"\n' + "".join(RULE.format(*rule) for rule in rules)
        if self.authority is not None:
            at = self.authority.directory
            text += f'[listen]\ntls = "127.0.0.1:{self.tls_port}"\n'
            text += f'[tls]\ncertificate = "{at}/node.pem"\nkey = "{at}/node.key"\n'
            text += f'client_authorities = "{at}/authority.pem"\n'
        self.settings.write_text(text + more)

    def start(self) -> None:
        count = self.said("node-ready")
        self.served.spawn()
        wait_until(lambda: self.said("node-ready") > count, self.served.said)

    def reload(self) -> None:
        count = self.said("settings-reloaded")
        assert self.served.process is not None
        self.served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.said("settings-reloaded") > count, self.served.said)

    def said(self, event: str) -> int:
        if not self.served.log.exists():
            return 0
        return sum(f'"event":"{event}"' in line for line in self.served.said().splitlines())

    def wait_said(self, event: str) -> dict[str, object]:
        wait_until(lambda: self.said(event) > 0, self.served.said)
        lines = [json.loads(line) for line in self.served.said().splitlines() if f'"event":"{event}"' in line]
        found: dict[str, object] = lines[-1]
        return found

    def by_token(self, token: str) -> Node:
        return connect(self.served.address, token=token)

    def by_certificate(self, certificate: str, key: str, timeout_s: float = 10, token: str | None = None) -> Node:
        assert self.authority is not None
        context = client_context(str(self.authority.certificate), certificate, key)
        context.check_hostname = False
        return connect(f"veredus+tls://127.0.0.1:{self.tls_port}", token=token, tls=context, timeout_s=timeout_s)


def ended_code(node: Node) -> str:
    """The code with which a connection is ended, seen by who uses it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            node.streams.list()
        except veredus.VeredusError as error:
            if error.code not in ("in-doubt",):
                return error.code
        time.sleep(0.01)
    raise AssertionError("the connection was not ended")


def reload_by_command(secured: Secured) -> subprocess.CompletedProcess[str]:
    """How `veredus node reload` ends for this node."""
    return ended([sys.executable, "-m", "veredus", "node", "reload", str(secured.served.directory)])
