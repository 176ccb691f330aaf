"""`veredus audit`: verify from client recordings that nothing was lost, duplicated or reordered."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.interrupts import Interrupts
from veredus.cli.link import Target
from veredus.cli.terminal import TABLE, Naming, note, output_option, write_one, write_rows
from veredus.kernel.errors import Refused
from veredus.kernel.extras import NEEDS_SPARK

if TYPE_CHECKING:
    from veredus.audit import Evidence, Verdict

SIDES = ("offered", "acknowledged", "pushed", "settled", "gaps")
_NODES = ("veredus://", "veredus+tls://", "unix://")
_VARIABLES = {"token": "VEREDUS_TOKEN", "caFile": "VEREDUS_AUTHORITIES"}
"""Options of a node's streams, by the variables that hold them."""
NODE_TIMEOUT_S = 10.0
_EXITS = {
    "holds": Exit.OK,
    "refuted": Exit.VIOLATED,
    "not proved": Exit.IN_DOUBT,
    "holds but for what was reported": Exit.GAP,
}
_INPUT_IS_BAD = {"bad-option", "bad-schema"}


def _sides(command: Any) -> Any:
    for side in reversed(SIDES):
        command = click.option(
            f"--{side}", cls=Naming, metavar="DIR", help=f"The table `{side}`: a directory of Parquet."
        )(command)
    return command


@click.command()
@click.argument("recordings", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@_sides
@click.option("--journal", cls=Naming, metavar="DIR|ADDRESS", help="The journal: a directory of Parquet, or a node.")
@click.option("--stream", "streams", cls=Naming, multiple=True, help="A stream of that node; repeatable.")
@click.option(
    "--covers",
    type=(str, str, str),
    multiple=True,
    metavar="STREAM SUBSCRIPTION CONDITION",
    help="What a subscription had to receive: a condition on sequence, source and number. The default is all.",
)
@click.option("--claim", "claims", multiple=True, help="Verify this claim only, for example kept/journal; repeatable.")
@click.option(
    "--into",
    cls=Naming,
    type=click.Path(path_type=Path),
    help="The directory to write the report to; it must not exist.",
)
@click.option("--samples", type=click.IntRange(0), default=20, show_default=True, help="Violations shown of each kind.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option("--memory", default="4g", show_default=True, help="The memory of Spark's driver.")
@output_option
def audit(
    recordings: Path | None,
    journal: str | None,
    streams: tuple[str, ...],
    covers: tuple[tuple[str, str, str], ...],
    claims: tuple[str, ...],
    into: Path | None,
    samples: int,
    master: str,
    memory: str,
    output: str,
    **sides: str | None,
) -> None:
    """Verify the guarantees of Veredus from what sources and subscribers recorded, and from the journal.

    RECORDINGS is a directory of recordings, as the clients wrote them or as Parquet. Options name single tables of it
    instead. The exit code is 0 only if every claim is verified. It is 9 if a claim is refuted, 8 if a claim cannot be
    decided, and 7 if the only losses are those that the node had reported.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise Refused("no-spark", f"the audit {NEEDS_SPARK}") from None
    from veredus.audit import CLAIMS
    from veredus.audit import audit as run
    from veredus.audit.judging import check_asked
    from veredus.audit.report import NotWritten
    from veredus.audit.session import SPARK_ERRORS, reason_of, session

    with Interrupts() as interrupts, interrupts.waiting(), ExitStack() as stack:
        try:
            asked = claims or tuple(CLAIMS)
            check_asked(asked, into)
            evidence = _evidence(stack, recordings, journal, streams, covers, {k: v for k, v in sides.items() if v})
            _ask_node(evidence)
            note("starting Spark")
            spark = stack.enter_context(session(master, memory))
            verdict = run(spark, evidence, claims=asked, into=into, samples=samples, progress=note)
        except FileExistsError as error:
            raise click.BadParameter(f"{into} {error.strerror}", param_hint="--into") from None
        except Refused as error:
            note(f"veredus: {error.message} [{error.code}]")
            if error.code == "damaged":
                raise Ended(Exit.DAMAGED) from None
            raise Ended(Exit.USAGE if error.code in _INPUT_IS_BAD else Exit.REFUSED) from None
        except NotWritten as error:
            with suppress(Ended):
                _say(error.verdict, output)
            raise
        except SPARK_ERRORS as error:
            note(f"veredus: Spark failed: {reason_of(error)}")
            raise Ended(Exit.ERROR) from error
    _say(verdict, output)


def _evidence(
    stack: ExitStack,
    recordings: Path | None,
    journal: str | None,
    streams: tuple[str, ...],
    covers: tuple[tuple[str, str, str], ...],
    sides: dict[str, str],
) -> Evidence:
    from dataclasses import replace

    from veredus.audit import Evidence, NodeJournal
    from veredus.recording import to_parquet

    if recordings is None and journal is None and not sides:
        raise click.UsageError("there is nothing to audit: give a directory of recordings, or single sides")
    evidence = Evidence()
    if recordings is not None:
        directory, origin = recordings, ""
        if any(recordings.glob("*.arrows")):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veredus-audit-"))) / "parquet"
            note(f"bringing together the recordings in {recordings}")
            to_parquet(recordings, directory)
            origin = str(recordings)
            if (recordings / "journal").is_dir():
                sides.setdefault("journal", str(recordings / "journal"))
        evidence = replace(Evidence.in_directory(directory), origin=origin)
    if journal is not None and not journal.startswith(_NODES):
        sides["journal"] = journal
    elif journal is not None:
        if not streams:
            raise click.UsageError("name the streams of the node: --stream NAME")
        options = {option: os.environ[name] for option, name in _VARIABLES.items() if os.environ.get(name)}
        evidence = replace(evidence, journal=NodeJournal(journal, streams, options))
    conditions = {(stream, subscription): condition for stream, subscription, condition in covers}
    return replace(evidence, covers=conditions, **sides)


def _ask_node(evidence: Evidence) -> None:
    """Ask for the journal's streams before Spark is started, whose tasks would each ask many times.

    Raises `Unavailable`, and `Refused` for a stream that is not there.
    """
    from veredus.audit import NodeJournal

    journal = evidence.journal
    if isinstance(journal, NodeJournal):
        addresses = tuple(address.strip() for address in journal.address.split(","))
        token, authorities = journal.options.get("token", ""), journal.options.get("caFile", "")
        target = Target(addresses, token, authorities, "", "", NODE_TIMEOUT_S)
        with target.connect() as node:
            for stream in journal.streams:
                node.streams.show(stream)


def _say(verdict: Verdict, output: str) -> None:
    claims = [
        {
            "claim": judged.claim.name,
            "outcome": str(judged.outcome),
            "violations": judged.violation_count,
            "reported": judged.reported_count,
            "why": "; ".join(judged.reasons),
        }
        for judged in verdict.judged
    ]
    if output == TABLE:
        write_rows(claims, output)
        if verdict.samples:
            click.echo()
            write_rows(verdict.samples, output)
    else:
        said = {"outcome": str(verdict.outcome), "claims": claims, "samples": list(verdict.samples)}
        counts = {"sources": list(verdict.sources), "subscriptions": list(verdict.subscriptions)}
        write_one(said | counts | {"rows": {str(kind): count for kind, count in verdict.rows.items()}}, output)
    code = _EXITS[verdict.outcome]
    if code is not Exit.OK:
        raise Ended(code)
