"""The ledger of a long campaign: which seeds were run by which code, what went wrong on purpose, and what broke.

    go on behind the last seed of this code ──► 200 seeds ──► the ledger, whole or not at all ──► the next 200

One campaign for each state of the code, told apart by a digest of all that a world runs. What is interrupted loses at
most the seeds that were under way, and goes on where the ledger ends. A ledger has one writer at a time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from veredus.kernel.errors import Refused

from .campaign import run_seeds
from .running import Outcome
from .topology import DRAWN
from .witnesses import EVENTS
from .world import SECOND

FORMAT = 1
CHUNK_COUNT = 200
RUN_BY_WORLDS = ("kernel", "delivery", "matching", "journal", "streams", "protocols", "node", "sim")
"""The packages whose code a world runs."""
BEGIN, END = "<!-- ledger -->", "<!-- end: ledger -->"
YEAR_S = 365.25 * 86_400


class Failed(msgspec.Struct):
    """A seed that broke a guarantee."""

    seed: int
    violation: str


class Campaign(msgspec.Struct):
    """What one state of the code was put through: seeds 1 to `last`."""

    code: str
    """Digest of what was run."""
    last: int = 0
    simulated_ns: int = 0
    seconds: float = 0.0
    """For how long it ran, on `workers` processes."""
    workers: int = 0
    counts: dict[str, int] = {}
    failed: list[Failed] = []

    def take(self, outcome: Outcome) -> None:
        """The next seed was run."""
        self.last = outcome.seed
        self.simulated_ns += outcome.simulated_ns
        self.counts = dict(Counter(self.counts) + outcome.counts)
        if outcome.violation:
            self.failed.append(Failed(outcome.seed, outcome.violation))


class Ledger(msgspec.Struct):
    """All campaigns, the oldest first."""

    format: int = FORMAT
    campaigns: list[Campaign] = []


def read_ledger(path: Path) -> Ledger:
    """The ledger in a file, an empty one where there is none yet.

    Raises `Refused("bad-ledger")` where it is none, or of another version; `OSError`.
    """
    if not path.exists():
        return Ledger()
    data = path.read_bytes()
    try:
        version = msgspec.json.decode(data, type=dict[str, Any]).get("format")
        if version != FORMAT:
            message = f"{path} has format {version!r}, this veredus keeps format {FORMAT}: name another file"
            raise Refused("bad-ledger", message)
        return msgspec.json.decode(data, type=Ledger)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path} is no ledger ({error}): put back a whole one, or name another file"
        raise Refused("bad-ledger", message) from None


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Replace the file, whole or not at all. Raises `OSError`."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(ledger), indent=1) + b"\n")


def replace_file(path: Path, data: bytes) -> None:
    """Give the file new contents: whatever happens meanwhile, it has the old ones or the new. Raises `OSError`."""
    named = path.resolve()
    temporary = named.with_name(f".{named.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if named.exists():
            shutil.copymode(named, temporary)
        temporary.replace(named)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Keep other campaigns off the ledger. Raises `Refused("bad-ledger")` where one has it, and `OSError`."""
    named = path.resolve()
    lock = named.with_name(f".{named.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        if not _is_locked(descriptor, lock):
            message = f"another campaign is writing {path}: wait for its end, or name another file"
            raise Refused("bad-ledger", message)
        try:
            yield
        finally:
            lock.unlink()
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int, lock: Path) -> bool:
    """Whether this process has got the lock; one whose file was removed meanwhile keeps nobody off."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def code_digest() -> str:
    """Of the sources that a world runs, in hexadecimal."""
    root = Path(__file__).parents[1]
    digest = blake2b(digest_size=8)
    for package in RUN_BY_WORLDS:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def go_on(
    path: Path, up_to: int, worker_count: int, may_go_on: Callable[[], bool], say: Callable[[str], object]
) -> Campaign:
    """Run seeds from where the ledger ends for this code, up to `up_to`, while `may_go_on`.

    Raises `Refused("bad-ledger")`, `OSError`.
    """
    with _only_writer(path):
        return _gone_on(path, up_to, worker_count, may_go_on, say)


def _gone_on(
    path: Path, up_to: int, worker_count: int, may_go_on: Callable[[], bool], say: Callable[[str], object]
) -> Campaign:
    ledger = read_ledger(path)
    # What cannot be kept is better told now than behind the first seeds.
    write_ledger(path, ledger)
    code = code_digest()
    if not ledger.campaigns or ledger.campaigns[-1].code != code:
        ledger.campaigns.append(Campaign(code))
    campaign = ledger.campaigns[-1]
    campaign.workers = worker_count or os.cpu_count() or 1
    while campaign.last < up_to and may_go_on():
        begun_s = time.monotonic()
        for outcome in _chunk(campaign.last + 1, min(up_to, campaign.last + CHUNK_COUNT), campaign.workers):
            campaign.take(outcome)
            if outcome.violation:
                say(f"seed {outcome.seed}: {outcome.violation}")
        campaign.seconds += time.monotonic() - begun_s
        write_ledger(path, ledger)
        say(f"{campaign.last:,} seeds, {len(campaign.failed)} failed, {campaign.last / campaign.seconds:.1f} a second")
    return campaign


def _chunk(first: int, last: int, worker_count: int) -> Iterator[Outcome]:
    return run_seeds(range(first, last + 1), DRAWN, worker_count)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(ledger: Ledger, page: Path) -> None:
    """Write the ledger into a page, between its marks. Raises `Refused("bad-ledger")`, `OSError`."""
    put_between(page, BEGIN, END, as_markdown(ledger))


def put_between(page: Path, begin: str, end: str, made: str) -> None:
    """Write `made` into a page, between two marks, and nothing else of it.

    Raises `Refused("bad-ledger")` where they are not there, and `OSError`.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused("bad-ledger", f"{page} is no page in UTF-8 ({error}): name another file") from None
    before, has_begun, rest = text.partition(begin)
    _, has_ended, after = rest.partition(end)
    if not has_begun or not has_ended:
        raise Refused("bad-ledger", f"{page} has no marks for the ledger: put {begin} and {end} into it")
    replace_file(page, f"{before}{begin}\n{made}{end}{after}".encode())


def as_markdown(ledger: Ledger) -> str:
    """All campaigns as a table, and the faults of all by kind."""
    total: Counter[str] = Counter()
    lines = [
        "| code | seeds | simulated | publications taken, pushed | engine events | a second and core | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for campaign in ledger.campaigns:
        counts = campaign.counts
        total.update(counts)
        pace = counts.get(EVENTS, 0) / campaign.seconds / campaign.workers if campaign.seconds else 0.0
        lines.append(
            f"| `{campaign.code}` | {campaign.last:,} | {_span(campaign.simulated_ns)}"
            f" | {counts.get('taken', 0):,}, {counts.get('pushed', 0):,} | {counts.get(EVENTS, 0):,} | {pace:,.0f}"
            f" | {', '.join(str(failed.seed) for failed in campaign.failed) or 'none'} |"
        )
    simulated_ns = sum(campaign.simulated_ns for campaign in ledger.campaigns)
    seeds = sum(campaign.last for campaign in ledger.campaigns)
    lines += ["", f"In all {seeds:,} seeds, {_span(simulated_ns)} simulated. What went wrong in them on purpose:", ""]
    lines += ["| fault | times |", "|---|---|"]
    lines += [
        f"| {name.removeprefix('fault.')} | {total[name]:,} |" for name in sorted(total) if name.startswith("fault.")
    ]
    return "\n".join(lines) + "\n"


def _span(simulated_ns: int) -> str:
    seconds = simulated_ns / SECOND
    return f"{seconds / 3600:,.0f} h ({seconds / YEAR_S:.3f} years)"
