"""Where everything of one run lies, below one directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir


class Layout:
    """Names the places in a run's directory."""

    def __init__(self, root: Path) -> None:
        """Of the run in `root`."""
        self.root = root
        self.plan = root / "plan.json"
        self.summary = root / "summary.json"
        self.logs = root / "logs"
        self.recordings = root / "recordings"
        """What members write down while they live."""
        self.attached = root / "attached"
        """A file for each life that has its name from the node: who has not yet is no zombie when it goes on."""
        self.evidence = root / "evidence"
        """The same as Parquet, with what the journal holds: what the audit reads."""
        self.report = root / "report"
        self.disk = root / "disk"
        """Where a small disk is mounted, when one is."""
        self.journal = self.disk / "journal"
        self.kept = self.disk / "kept"
        self.filler = self.disk / "filler"
        self.undo_log = root / "undo.log"
        self.switches = root / "switches.json"
        self._heads = root / "heads.json"
        self.no_more = root / "publish-no-more"
        """When this is there, sources and sinks bring what they have to its end, and leave."""
        self.all_done = root / "all-done"
        """When this is there, subscribers settle what they have, and leave."""

    @property
    def heads(self) -> dict[str, int]:
        """The newest sequence of each stream, once nobody publishes any more: for those that have no cursor."""
        return dict(json.loads(self._heads.read_text()))

    def keep_heads(self, heads: Mapping[str, int]) -> None:
        """Say the newest sequences; before `all_done` is there."""
        self._heads.write_text(json.dumps(dict(heads)))

    def known_by(self, name: str) -> Path:
        """Where a client from a page keeps what it has done, or has done with."""
        return self.root / "known" / name

    @property
    def socket(self) -> str:
        """The node's Unix socket; elsewhere, since the system allows its name about a hundred bytes."""
        tail = blake2b(str(self.root).encode(), digest_size=6).hexdigest()
        return str(Path(gettempdir()) / f"veredus-chaos-{tail}.socket")

    def attached_as(self, name: str, pid: int) -> Path:
        """The file of one life."""
        return self.attached / f"{name}-{pid}"

    def make(self) -> None:
        """Make the directories that others write into."""
        for directory in (self.logs, self.recordings, self.attached, self.disk):
            directory.mkdir(parents=True, exist_ok=True)
