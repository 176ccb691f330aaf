"""What a commit holds: its streams, their incarnations, how many rows and which. It belongs to the commit's identity.

So a commit that is asked for again is known by more than its number: where the number is the same and the contents are
not, it is another one, and to call it done would lose its rows.
Source: guarantee 8; docs/decisions/0009-spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from veredus.delivery.content import DIGEST_SIZE_MAX, Content
from veredus.kernel.errors import Refused
from veredus.kernel.words import counted

from .exchange import CommitRequested
from .facts import Contents
from .tables import Run, Stage, Tables

NAMED_MAX: Final = 8
"""So many streams of a commit are named in a refusal: some commits have more than a frame would take."""


def contents_of(tables: Tables, stages: Sequence[Stage] | None, said: Sequence[Content]) -> tuple[Contents, ...]:
    """What `stages` hold, with the digests that the sink says, by stream. `stages` None: what the sink says alone.

    Raises `Refused("bad-contents")` where what it says is not what was staged.
    """
    by_id: dict[int, int] = {}
    for stage in stages or ():
        by_id[stage.stream_id] = by_id.get(stage.stream_id, 0) + stage.count_durable
    counts = {tables.streams_by_id[number].name: count for number, count in by_id.items()}
    by_stream = {content.stream: content for content in said}
    if len(by_stream) != len(said) or any(len(content.digest) > DIGEST_SIZE_MAX for content in said):
        raise Refused(
            "bad-contents", f"each stream must be named once, with a digest of at most {DIGEST_SIZE_MAX} bytes"
        )
    for name in sorted(by_stream.keys() | counts.keys()) if said and stages is not None else ():
        told = by_stream[name].row_count if name in by_stream else 0
        if told != counts.get(name, 0):
            message = f"stream {name!r} has {counts.get(name, 0)} rows in the stages, and the sink says {told}"
            raise Refused("bad-contents", message, stream=name)
    wanted = said or [Content(name, count) for name, count in counts.items()]
    found = []
    for name, count, digest in sorted(wanted):
        stream = tables.streams.get(name)
        found.append(Contents(name, b"" if stream is None else stream.incarnation, count, digest))
    return tuple(found)


def check_commits_kept(run: Run, asked: CommitRequested) -> None:
    """Raise `Refused("lost")` where a commit is gone that the sink knows to be done: no other goes on behind it."""
    if run.commit_id < asked.after:
        has = "none" if run.commit_id < 0 else str(run.commit_id)
        message = (
            f"commit {asked.after} of sink {run.sink!r} was acknowledged, and the last one that the node has is {has}:"
            " its journal was put back to an earlier state. Nothing was written. Open a new run, and write what is"
            " missing behind its `commit_id` again"
        )
        raise Refused("lost", message, sink=run.sink, acknowledged=asked.after, commit_id=run.commit_id)


def check_rows_kept(stages: Sequence[Stage], asked: CommitRequested) -> None:
    """Raise `Refused("lost")` where a stage has not all the rows that the sink has receipts for."""
    if not asked.counts:
        return
    if len(asked.counts) != len(asked.stages):
        said = f"{len(asked.counts)} counts were said for {len(asked.stages)} stages: say one for each, or none"
        raise Refused("bad-contents", said)
    known = dict(zip(asked.stages, asked.counts, strict=True))
    for stage in stages:
        count, kept = known.get(stage.stage, 0), stage.count_durable
        if kept < count:
            message = (
                f"row {count} of stage {stage.stage} was acknowledged, and the node has {kept}: its journal was put"
                " back to an earlier state. Write the rows again, in a new stage"
            )
            raise Refused("lost", message, stage=stage.stage, acknowledged=count, count=kept)


def check_repeated(run: Run, asked: Sequence[Contents]) -> None:
    """Raise `Refused` unless `asked` may be what the run's last commit holds; () says nothing of it.

    Codes: `commit-other-streams`, where a stream is another one, or was deleted and made again since, and
    `commit-other-rows`, each with both contents, or of many the first that differ. Both are in the order of names; no
    more is looked at than is asked for.
    """
    if not run.contents or not asked:
        return
    for index, (one, other) in enumerate(zip_longest(run.contents, asked)):
        if not (one and other and _is_same_stream(one, other)):
            known, wanted = _streams(run.contents, index), _streams(asked, index)
            message = (
                f"sink {run.sink!r} has done commit {run.commit_id} already, into {known}, and is asked to do it into"
                f" {wanted}: nothing was written. Give the commit an id of its own, or name another sink"
            )
            raise _other("commit-other-streams", message, run, asked, index)
        name = one.stream
        if one.count != other.count or (one.digest and other.digest and one.digest != other.digest):
            message = (
                f"sink {run.sink!r} has done commit {run.commit_id} already, with {_rows(one)} for stream {name!r}, and"
                f" is asked to do it with {_rows(other)}: nothing was written. If the rows are computed anew each time"
                " (rand, uuid, a table that changed), make the query deterministic, or set Spark's onOtherRows=keep,"
                " which keeps the rows that were written. The same option helps if the input was put back to an older"
                " copy. If the checkpoint of a streaming query was deleted, name a new sink to write all once more. If"
                " it was replaced by an earlier copy, put the later one back, and do not set onOtherRows=keep: rows"
                " that were read since would be lost"
            )
            raise _other("commit-other-rows", message, run, asked, index)


def _is_same_stream(one: Contents, other: Contents) -> bool:
    """A stream that was not there had no row: whichever has the name now is the same."""
    return one.stream == other.stream and (one.incarnation == other.incarnation or not one.incarnation)


def _some(contents: Sequence[Contents], index: int) -> Sequence[Contents]:
    """All, or where there are many those from `index` on, where they differ from others first."""
    start = max(0, min(index, len(contents) - NAMED_MAX))
    return contents[start : start + NAMED_MAX]


def _streams(contents: Sequence[Contents], index: int) -> str:
    named = ", ".join(f"{c.stream!r} (incarnation {c.incarnation.hex()[:8] or 'none'})" for c in _some(contents, index))
    return named if len(contents) <= NAMED_MAX else f"{len(contents)} streams, of them {named}"


def _rows(contents: Contents) -> str:
    return counted(contents.count, "row") + (f" (digest {contents.digest.hex()})" if contents.digest else "")


def _other(code: str, message: str, run: Run, asked: Sequence[Contents], index: int) -> Refused:
    some = {"committed": _plain(_some(run.contents, index)), "asked": _plain(_some(asked, index))}
    counts = {"committed_count": len(run.contents), "asked_count": len(asked)}
    return Refused(code, message, commit_id=run.commit_id, **some, **counts)


def _plain(contents: Sequence[Contents]) -> list[list[object]]:
    return [[c.stream, c.incarnation.hex(), c.count, c.digest.hex()] for c in contents]
