"""The audit from evidence to verdict: one pass over each side, comparison, and a second look where sides differ."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

import veredus
from veredus.kernel.errors import Refused
from veredus.recording import Kind

from .evidence import SPLIT, Evidence, NodeJournal, Side, check_ranges, fetched_journal, side_of
from .findings import findings_of, found_in, violation
from .guarantees import CLAIMS
from .incoming import Incoming, incoming_of
from .ordering import GROUP, compared, disorder_of, sorted_rows
from .outgoing import Outgoing, check_covers, outgoing_of, settled_before, settled_counts
from .page import BIN_COUNT, SHOWN_MAX
from .passes import summary_of
from .report import NotWritten, Tables, write_report
from .session import SPARK_ERRORS, reason_of
from .verdict import Count, Verdict, judge, type_of_value

SAMPLES: Final = 20
_ORDERED: Final = (Kind.JOURNAL, Kind.PUSHED)
_FILE: Final = re.compile(r"file:/*(/[^\s'\"]+?\.parquet)|(\w+://[^\s'\"]+?\.parquet)")
_SUMMARISED: Final = (Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL, Kind.PUSHED)

type_of_progress = Callable[[str], None]


def audit(
    spark: SparkSession,
    evidence: Evidence,
    *,
    claims: Collection[str] = tuple(CLAIMS),
    into: str | Path | None = None,
    samples: int = SAMPLES,
    progress: type_of_progress = lambda _: None,
) -> Verdict:
    """Decide whether the guarantees that `claims` name were kept, by what sources, journal and subscribers wrote down.

    `into` gets the report, as Parquet and as a page: a directory that is not there yet. `samples` is how many
    violations of each kind are named. `progress` is told what is done.
    Raises `Refused`: `damaged` and `bad-schema` name the file, `bad-option` what of the evidence makes no sense;
    `NotWritten`, which has the verdict, where the report has no place; and `OSError`.
    """
    check_asked(claims, into)
    target = None if into is None else Path(into).absolute()
    with ExitStack() as stack:
        if target is not None:
            stack.enter_context(_new_directory(target))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="veredus-audit-"))
        try:
            return _Audit(spark, evidence, samples, progress, target, Path(scratch)).verdict(claims)
        except SPARK_ERRORS as error:
            raise _named(error) from error


def check_asked(claims: Collection[str], into: str | Path | None) -> None:
    """What can be told without Spark: raises `Refused("bad-option")` for a claim that nobody knows, and
    `FileExistsError` where the report has no place.
    """
    unknown = sorted(set(claims) - set(CLAIMS))
    if unknown or not claims:
        raise Refused("bad-option", f"unknown claim {', '.join(unknown) or '(none given)'}; known: {', '.join(CLAIMS)}")
    if into is not None and os.path.lexists(into):
        raise _taken(Path(into))


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "exists already: name a new directory", str(path))


@contextmanager
def _new_directory(path: Path) -> Iterator[None]:
    """Made at once, for that there is no place for it is no news for the end; what fails in here takes it along."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise _taken(path) from None
    try:
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _named(error: Exception, where: object = "") -> Exception:
    """Which file Spark could not read, or what of the side at `where` makes no sense; others are themselves."""
    text = str(error)
    found = _FILE.search(text)
    if "FAILED_READ_FILE" in text and found:
        return Refused("damaged", f"{found.group(1) or found.group(2)}: Spark cannot read it, it is damaged")
    null = re.search(r"ValueError: (column \w+ has a null[^\n]*|a range of[^\n]*)", text)
    return Refused("bad-schema", f"{where}: {null.group(1)}") if null else error


class _Audit:
    """One audit: its sides, and the frames that were made of them."""

    def __init__(
        self,
        spark: SparkSession,
        evidence: Evidence,
        sample_count: int,
        progress: type_of_progress,
        into: Path | None,
        scratch: Path,
    ) -> None:
        self._spark = spark
        self._evidence = evidence
        self._sample_count = sample_count
        self._progress = progress
        self._into = into
        self._scratch = scratch
        self._begun_s = time.monotonic()
        self._sides: dict[Kind, Side] = {}
        self._doubts: dict[Kind, tuple[str, ...]] = {}
        self._head = 0
        """The greatest sequence in the journal."""

    def verdict(self, claims: Collection[str]) -> Verdict:
        self._load()
        summaries: dict[Kind, DataFrame] = {kind: self._summary(kind) for kind in _SUMMARISED if kind in self._sides}
        found = [self._order_findings(kind, summaries[kind]) for kind in _ORDERED if kind in summaries]
        incoming = self._incoming(summaries)
        outgoing = self._outgoing(summaries)
        found += [judged.findings if judged else None for judged in (incoming, outgoing)]
        if incoming and outgoing and outgoing.findings is not None and incoming.in_doubt is not None:
            found.append(_two_stories(outgoing.findings, incoming.in_doubt))
        extents = summaries[Kind.JOURNAL].where("what = 'sequences'") if Kind.JOURNAL in summaries else None
        if extents is not None:
            self._head = extents.agg(f.max("last_number")).collect()[0][0] or 0
        floors = None if extents is None else extents.groupBy("stream").agg(f.min("first_number").alias("floor"))
        whole = {kind: replace(side, doubts=self._doubts[kind]) for kind, side in self._sides.items()}
        there = [frame for frame in found if frame is not None]
        findings = findings_of(self._spark, there, whole, floors).localCheckpoint()
        return self._said(claims, findings, incoming, outgoing)

    def _load(self) -> None:
        for kind, path in self._evidence.paths().items():
            self._sides[kind] = side_of(self._spark, kind, path)
            check_ranges(self._sides[kind], path)
        journal = self._evidence.journal
        if isinstance(journal, NodeJournal):
            self._progress(f"reading {', '.join(journal.streams)} from {journal.address}")
            kept = self._scratch if self._into is None else self._into / "evidence"
            self._sides[Kind.JOURNAL] = fetched_journal(self._spark, journal, kept / "journal")
        if not self._sides:
            raise Refused("bad-option", "there is nothing to audit: no recordings were given")
        check_covers(self._sides.get(Kind.JOURNAL), self._evidence.covers)
        self._doubts = {kind: side.doubts for kind, side in self._sides.items()}

    def _summary(self, kind: Kind) -> DataFrame:
        begun_s, side = time.monotonic(), self._sides[kind]
        try:
            summary = summary_of(kind, side.rows).localCheckpoint()
        except SPARK_ERRORS as error:
            raise _named(error, self._evidence.paths().get(kind, kind)) from error
        self._progress(f"{kind}: {side.row_count:,} rows in {time.monotonic() - begun_s:.1f} s")
        return summary

    def _order_findings(self, kind: Kind, summary: DataFrame) -> DataFrame | None:
        """What is out of order or there twice, in the journal or in what was pushed."""
        rows, order = _ordered_rows(kind, self._sides[kind].rows)
        runs = compared(summary.where("what = 'runs'")).localCheckpoint()
        if not runs.where("overlaps").isEmpty():
            self._progress(f"{kind}: not written in order: sorting")
            whole = self._sides[kind].rows.withColumn(SPLIT, f.lit(0).cast("bigint"))
            sorted_ = summary_of(kind, sorted_rows(whole, *order))
            runs = compared(sorted_.where("what = 'runs'")).localCheckpoint()
        if kind is Kind.PUSHED:
            self._check_places(runs)
        suspects = runs.where("first_number <= after")
        count = suspects.count()
        if not count:
            self._progress(f"{kind}: in order, without duplicates")
            return None
        self._progress(f"{kind}: {count:,} runs go back: reading their numbers again")
        disorder = disorder_of(rows, suspects, count).localCheckpoint()
        return _journal_disorder(disorder) if kind is Kind.JOURNAL else self._pushed_disorder(disorder)

    def _pushed_disorder(self, disorder: DataFrame) -> DataFrame:
        place = f.format_string("place %d of life %s", "position", "life")
        found = found_in(
            disorder,
            violation("overtaken", "occurrence = 1 AND after IS NOT NULL", f.concat(_after(), f.lit(", "), place)),
            violation("pushed-twice", "occurrence > 1 AND NOT redelivered", place),
        )
        if Kind.SETTLED not in self._sides:
            return found
        repeated = disorder.where("occurrence > 1")
        settled = settled_before(repeated, repeated.count(), self._sides[Kind.SETTLED].rows)
        detail = f.concat(place, f.lit(", settled in life "), f.col("settled.life"))
        return found.unionByName(found_in(settled, violation("pushed-though-settled", f.lit(True), detail)))

    def _check_places(self, runs: DataFrame) -> None:
        """A life counts what was pushed to it: where its count goes on without its rows, rows are missing."""
        lives = runs.groupBy("life").agg(f.max("last_position").alias("last"), f.sum("count").alias("count"))
        holed = lives.where("last <> count").orderBy("life").limit(1).collect()
        if holed:
            life, last, count = holed[0]
            doubt = f"life {life} counted {last:,} pushed publications, and the recordings have {count:,} of them"
            self._doubts[Kind.PUSHED] = (*self._doubts[Kind.PUSHED], doubt)

    def _incoming(self, summaries: Mapping[Kind, DataFrame]) -> Incoming | None:
        if not {Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL} & set(summaries):
            return None
        incoming = incoming_of(self._sides, summaries)
        self._progress(f"from sources to the journal: {incoming.differing_count:,} buckets differ")
        return incoming

    def _outgoing(self, summaries: Mapping[Kind, DataFrame]) -> Outgoing | None:
        if not {Kind.JOURNAL, Kind.PUSHED} <= set(summaries):
            return None
        outgoing = outgoing_of(self._spark, self._sides, summaries, self._evidence.covers)
        self._progress(f"from the journal to subscriptions: {outgoing.differing_count:,} buckets differ")
        return outgoing

    def _said(
        self, claims: Collection[str], findings: DataFrame, incoming: Incoming | None, outgoing: Outgoing | None
    ) -> Verdict:
        places = _places(findings, self._head)
        counts = _counted(places)
        samples = self._sampled(findings) if counts else ()
        subscriptions = outgoing.counts if outgoing else None
        if subscriptions is not None and Kind.SETTLED in self._sides:
            subscriptions = subscriptions.join(
                settled_counts(self._sides[Kind.SETTLED]), ["stream", "subscription"], "left"
            )
        sources = incoming.counts if incoming else None
        verdict = Verdict(
            judge(claims, counts, self._doubts),
            samples,
            {kind: side.row_count for kind, side in self._sides.items()},
            _first_rows(sources, "stream", "source"),
            _first_rows(subscriptions, "stream", "subscription"),
            places,
            time.monotonic() - self._begun_s,
            {
                "judged": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
                "version": f"Veredus {veredus.__version__}",
                **self._evidence.told(),
            },
        )
        if self._into is not None:
            try:
                write_report(verdict, Tables(sources, subscriptions, findings), self._into)
            except OSError as error:
                raise NotWritten(verdict, self._into, error.strerror or str(error)) from error
            except SPARK_ERRORS as error:
                raise NotWritten(verdict, self._into, reason_of(error)) from error
            self._progress(f"report: {self._into}/report.html")
        return verdict

    def _sampled(self, findings: DataFrame) -> tuple[Mapping[str, type_of_value], ...]:
        """The first ones of each kind that speak against the claim; where these are few, others behind them."""
        rank = f.when(f.col("is_reported"), 2).when(f.col("is_certain"), 0).otherwise(1)
        says = f.when(rank == 2, "reported").when(rank == 0, "violation").otherwise("not certain")
        first = Window.partitionBy("violation").orderBy(
            rank, "stream", "subscription", "source", "number", "sequence", "detail"
        )
        wanted = ("violation", "counts_as", "stream", "subscription", "source", "number", "sequence", "detail")
        ranked = findings.withColumns({"counts_as": says, "place": f.row_number().over(first)})
        rows = ranked.where(f.col("place") <= self._sample_count).select(*wanted, "place").collect()
        rows.sort(key=lambda row: (row["violation"], row["place"]))
        return tuple({name: row[name] for name in wanted} for row in rows)


def _ordered_rows(kind: Kind, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """A side's rows as those of groups with positions, and what sorts them as they were written."""
    if kind is Kind.JOURNAL:
        nobody = {"subscription": f.lit(""), "life": f.lit("")}
        whole = rows.withColumns({**nobody, "position": f.col("sequence")})
        return whole.select(*GROUP, "life", "position", "number", "sequence"), ("stream", "sequence")
    whole = rows.withColumn("position", f.col("place"))
    order = ("stream", "subscription", "life", "place")
    return whole.select(*GROUP, "life", "position", "number", "sequence", "redelivered"), order


def _after() -> Column:
    return f.concat(f.lit("after number "), f.col("after"))


def _journal_disorder(disorder: DataFrame) -> DataFrame:
    return found_in(
        disorder,
        violation("overtaken-in-journal", "occurrence = 1 AND after IS NOT NULL", _after()),
        violation("doubled", "occurrence > 1", f.concat(f.lit("occurrence "), f.col("occurrence"))),
    )


def _two_stories(outgoing: DataFrame, in_doubt: DataFrame) -> DataFrame:
    rows = outgoing.where("violation <> 'uncovered'").join(in_doubt, ["stream", "source", "number"])
    taken = f.when(f.col("is_taken"), "taken").otherwise("not taken")
    return found_in(rows, violation("two-stories", f.lit(True), f.concat(taken, f.lit(", and "), f.col("violation"))))


def _counted(places: Iterable[Mapping[str, type_of_value]]) -> dict[str, Count]:
    counts: dict[str, Counter[str]] = {}
    for place in places:
        counts.setdefault(str(place["violation"]), Counter())[str(place["counts_as"])] += int(place["count"] or 0)
    return {name: Count(of["violation"], of["reported"], of["not certain"]) for name, of in sorted(counts.items())}


def _first_rows(rows: DataFrame | None, *order: str) -> tuple[Mapping[str, type_of_value], ...]:
    return () if rows is None else tuple(row.asDict() for row in rows.orderBy(*order).limit(SHOWN_MAX).collect())


def _places(findings: DataFrame, head: int) -> tuple[Mapping[str, type_of_value], ...]:
    """How many violations of each kind lie in each bin, from 1 to the end of the journal and of the violations."""
    place = findings.withColumn("at", f.coalesce("sequence", "number"))
    last = max(head, place.agg(f.max("at")).collect()[0][0] or 0)
    says = f.when(f.col("is_reported"), "reported").when(f.col("is_certain"), "violation").otherwise("not certain")
    at = f.least(f.floor(f.col("at") * BIN_COUNT / f.lit(last + 1)), f.lit(BIN_COUNT - 1))
    binned = place.select("violation", says.alias("counts_as"), at.alias("bin"))
    grouped = binned.groupBy("violation", "counts_as", "bin").agg(f.count("*").alias("count"))
    rows = [row.asDict() | {"last": last} for row in grouped.collect()]
    return tuple(sorted(rows, key=lambda row: (row["violation"], row["counts_as"], row["bin"])))
