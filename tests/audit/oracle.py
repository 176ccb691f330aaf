"""What an audit must find in a small world, by the plain reading of each violation's definition."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from tests.audit.worlds import Row, World

Found = tuple[str, str, str, str, int, int | None]
"""Violation, what it counts as, subscription, source, number, sequence."""
REPORTED = {"damaged", "trimmed", "lost"}
RESTS_ON_JOURNAL = {"lost", "overtaken-in-journal", "phantom", "hole"}


def normal(row: Row) -> Row:
    """A row without a source is known by its sequence."""
    return row if row["source"] else row | {"source": "", "number": row["sequence"]}


def found_in(world: World) -> Counter[Found]:
    """Everything that is wrong with a world of one stream."""
    journal = [normal(row) for row in world.journal]
    pushed = [normal(row) for row in world.pushed]
    found = list(
        chain(incoming(world, journal), in_order(journal), pushes(world, pushed), outgoing(world, journal, pushed))
    )
    doubted = in_doubt(world)
    found += [
        ("two-stories", subscription, source, number, sequence)
        for violation, subscription, source, number, sequence in found
        if violation in {"missing", "phantom", "changed"} and (source, number) in doubted
    ]
    return Counter(counted(world, journal, *finding) for finding in found)


def counted(
    world: World, journal: list[Row], violation: str, subscription: str, source: str, number: int, sequence: int | None
) -> Found:
    counts_as = "violation"
    floor = min((row["sequence"] for row in journal), default=1)
    first_known = min((row["number"] for row in journal if row["source"] == source), default=None)
    if violation in RESTS_ON_JOURNAL and floor > 1:
        is_kept = sequence >= floor if sequence is not None else first_known is not None and number > first_known
        counts_as = "violation" if is_kept else "not certain"
    for gap in world.gaps:
        # What is not in the journal has been named as such by any of the stream's gaps.
        is_for = subscription in ("", gap["subscription"]) or violation in RESTS_ON_JOURNAL
        if sequence is not None and gap["first_sequence"] <= sequence <= gap["last_sequence"] and is_for:
            counts_as = "reported" if gap["code"] in REPORTED else counts_as
    return violation, counts_as, subscription, source, number, sequence


def acknowledged(world: World) -> dict[tuple[str, int], set[int]]:
    told: dict[tuple[str, int], set[int]] = {}
    for row in world.acknowledged:
        for number in range(row["first_number"], row["last_number"] + 1):
            sequences = told.setdefault((row["source"], number), set())
            if row["first_sequence"]:
                sequences.add(row["first_sequence"] + number - row["first_number"])
    return told


def in_doubt(world: World) -> set[tuple[str, int]]:
    return {(row["source"], row["number"]) for row in world.offered} - set(acknowledged(world))


def incoming(world: World, journal: list[Row]) -> list[tuple[Any, ...]]:
    offered: dict[tuple[str, int], set[int]] = {}
    for row in world.offered:
        offered.setdefault((row["source"], row["number"]), set()).add(row["digest"])
    told = acknowledged(world)
    kept: dict[tuple[str, int], list[Row]] = {}
    for row in journal:
        if row["source"]:
            kept.setdefault((row["source"], row["number"]), []).append(row)
    found: list[tuple[Any, ...]] = []
    for identity in set(offered) | set(told) | set(kept):
        rows, sequences = kept.get(identity, []), sorted(told.get(identity, ()))
        at = min((row["sequence"] for row in rows), default=None)
        said = sequences[0] if sequences else None
        if identity in told and not rows:
            found.append(("lost", "", *identity, said))
        if rows and set(sequences) - {row["sequence"] for row in rows}:
            found.append(("other-sequence", "", *identity, at))
        if identity not in offered:
            found.append(("unoffered", "", *identity, at if at is not None else said))
        if identity in offered and {row["digest"] for row in rows} - offered[identity]:
            found.append(("other-bytes", "", *identity, at))
        if identity in offered and identity not in told:
            last = max((number for source, number in kept if source == identity[0]), default=0)
            if not rows and identity[1] < last:
                found.append(("hole", "", *identity, None))
            if len(rows) > 1:
                found.append(("two-outcomes", "", *identity, at))
    return found


def in_order(journal: list[Row]) -> list[tuple[Any, ...]]:
    found, seen, last = [], set(), Counter[str]()
    for row in sorted(journal, key=lambda row: row["sequence"]):
        identity = (row["source"], row["number"])
        if identity in seen:
            found.append(("doubled", "", *identity, row["sequence"]))
        elif row["number"] < last[row["source"]]:
            found.append(("overtaken-in-journal", "", *identity, row["sequence"]))
        seen.add(identity)
        last[row["source"]] = max(last[row["source"]], row["number"])
    return found


def pushes(world: World, pushed: list[Row]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    seen, last = set(), Counter[tuple[str, str]]()
    for row in sorted(pushed, key=lambda row: (row["life"], row["place"])):
        subscription, source, number = row["subscription"], row["source"], row["number"]
        place = (subscription, source, number, row["sequence"])
        if (subscription, source, number) in seen:
            if not row["redelivered"]:
                found.append(("pushed-twice", *place))
            if any(
                settled["subscription"] == subscription
                and settled["first_sequence"] <= row["sequence"] <= settled["last_sequence"]
                and (settled["life"], settled["place"]) < (row["life"], row["place"])
                for settled in world.settled
            ):
                found.append(("pushed-though-settled", *place))
        elif number < last[subscription, source]:
            found.append(("overtaken", *place))
        seen.add((subscription, source, number))
        last[subscription, source] = max(last[subscription, source], number)
    return found


def outgoing(world: World, journal: list[Row], pushed: list[Row]) -> list[tuple[Any, ...]]:
    def identities(rows: list[Row]) -> list[tuple[str, int, int]]:
        return sorted({(row["source"], row["number"], row["digest"]) for row in rows})

    found: list[tuple[Any, ...]] = []
    for subscription in {row["subscription"] for row in chain(pushed, world.settled, world.gaps)}:
        came = [row for row in pushed if row["subscription"] == subscription]
        for sequence in {row["sequence"] for row in chain(journal, came)}:
            kept_here = identities([row for row in journal if row["sequence"] == sequence])
            came_here = identities([row for row in came if row["sequence"] == sequence])
            source, number, _ = (kept_here or came_here)[0]
            if not came_here:
                found.append(("missing", subscription, source, number, sequence))
            if not kept_here:
                found.append(("phantom", subscription, source, number, sequence))
            elif set(came_here) - set(kept_here):
                found.append(("changed", subscription, source, number, sequence))
    return found
