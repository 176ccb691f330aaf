"""An authority of a test's own: it signs certificates, and lists those that it has revoked. By the openssl command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import ended

DAYS = "36500"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_CONFIGURATION = """
[ca]
default_ca = own
[own]
database = {directory}/index
default_md = sha256
default_crl_days = {days}
"""


@dataclass
class Authority:
    """Owns its key, and the certificates that it signed, in `directory`."""

    directory: Path
    serials: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = self.directory / "authority.pem", self.directory / "authority.key"
        name = f"/CN={self.directory.name}"
        self._run("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", name, "-days", DAYS)
        self._configuration = self.directory / "configuration"
        self._configuration.write_text(_CONFIGURATION.format(directory=self.directory, days=DAYS))
        self._index = self.directory / "index"
        self._index.touch()
        self._signed_count = 0

    def sign(self, name: str, subject: str, alternatives: str = "", days: str = DAYS) -> tuple[str, str]:
        """A certificate for `subject` ("/CN=desk-1"), and its key; files `name`.pem and `name`.key."""
        files = [self.directory / f"{name}.{kind}" for kind in ("pem", "key", "request")]
        certificate, key, request = files
        extra = ("-addext", f"subjectAltName={alternatives}") if alternatives else ()
        self._run("req", *_KEY, "-keyout", key, "-out", request, "-subj", subject, *extra)
        self._signed_count += 1
        serial = self.serials[name] = 0x80 + self._signed_count
        signing = ("-CA", self.certificate, "-CAkey", self._key, "-set_serial", str(serial), "-days", days)
        self._run("x509", "-req", "-in", request, *signing, "-copy_extensions", "copy", "-out", certificate)
        return str(certificate), str(key)

    def revoke(self, *names: str) -> Path:
        """The list of all that were revoked, these now too: the file `revoked.pem`, put in place at once."""
        with self._index.open("a") as index:
            for name in names:
                index.write(f"R\t490101000000Z\t260101000000Z\t{self.serials[name]:X}\tunknown\t/CN={name}\n")
        made, listed = self.directory / "made.pem", self.directory / "revoked.pem"
        signing = ("-keyfile", self._key, "-cert", self.certificate)
        self._run("ca", "-gencrl", "-config", self._configuration, *signing, "-out", made)
        made.replace(listed)
        return listed

    def _run(self, *arguments: str | Path) -> None:
        done = ended(["openssl", *map(str, arguments)])
        assert done.returncode == 0, done.stderr
