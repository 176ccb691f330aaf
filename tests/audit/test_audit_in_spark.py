"""The audit finds what is wrong in many small worlds, each a stream of its own, and nothing else."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import veredus
from tests.audit.oracle import Found, found_in
from tests.audit.worlds import LATER_LIFE, World, sound_world
from veredus import Embedded
from veredus.audit import CLAIMS, VIOLATIONS, Evidence, NodeJournal, Outcome, audit
from veredus.audit.page import BIN_COUNT
from veredus.kernel.errors import Refused
from veredus.recording import Kind, Recording, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RANDOM_COUNT = 80
SAMPLES = 100_000


@pytest.fixture(scope="module")
def audited_node() -> Iterator[Embedded]:
    with veredus.embedded(journal={"sync": "none"}) as node:
        yield node


def lost(world: World) -> None:
    del world.journal[10]


def doubled(world: World) -> None:
    world.journal.append(world.journal[10] | {"sequence": len(world.journal) + 1})


def swapped(world: World) -> None:
    first, second = (row for row in world.journal if row["source"] == "a" and row["number"] in (5, 6))
    for name in ("number", "digest"):
        first[name], second[name] = second[name], first[name]


def other_bytes(world: World) -> None:
    world.journal[10]["digest"] += 1


def unoffered(world: World) -> None:
    del world.offered[10]


def acknowledged_elsewhere(world: World) -> None:
    world.acknowledged[10]["first_sequence"] += 1


def hole(world: World) -> None:
    del world.journal[10], world.acknowledged[10]


def two_outcomes(world: World) -> None:
    del world.acknowledged[10]
    doubled(world)


def missing(world: World) -> None:
    del world.pushed[10]
    world.replace_places()


def missing_in_doubt(world: World) -> None:
    del world.acknowledged[10]
    missing(world)


def pushed_twice(world: World) -> None:
    world.pushed.insert(12, dict(world.pushed[10]))
    world.replace_places()


def pushed_though_settled(world: World) -> None:
    world.push(11, life=LATER_LIFE, redelivered=True)


def overtaken(world: World) -> None:
    rows = [row for row in world.pushed if row["source"] == "a" and row["subscription"] == "main"][5:7]
    rows[0]["place"], rows[1]["place"] = rows[1]["place"], rows[0]["place"]


def changed(world: World) -> None:
    world.pushed[10]["digest"] += 1


def phantom(world: World) -> None:
    world.pushed.append(world.pushed[59] | {"sequence": 900, "number": 900, "place": world.place() + 1})


PLANTED: dict[str, Callable[[World], None]] = {
    "lost": lost,
    "doubled": doubled,
    "overtaken-in-journal": swapped,
    "other-bytes": other_bytes,
    "unoffered": unoffered,
    "other-sequence": acknowledged_elsewhere,
    "hole": hole,
    "two-outcomes": two_outcomes,
    "missing": missing,
    "two-stories": missing_in_doubt,
    "pushed-twice": pushed_twice,
    "pushed-though-settled": pushed_though_settled,
    "overtaken": overtaken,
    "changed": changed,
    "phantom": phantom,
}


def random_world(seed: int) -> World:
    """A sound world in which a few rows of any side were lost, doubled, moved or changed; some is reported."""
    dice = random.Random(seed)
    world = sound_world(dice.randint(12, 40))
    if dice.random() < 0.5:
        for sequence in range(dice.randint(1, 10), 12):
            world.push(sequence, life=LATER_LIFE, redelivered=dice.random() < 0.9)
    for _ in range(dice.randint(0, 5)):
        rows = getattr(world, dice.choice([kind.value for kind in Kind if kind is not Kind.GAPS]))
        at = dice.randrange(len(rows))
        match dice.choice(["lose", "double", "change", "swap"]):
            case "lose":
                del rows[at]
            case "double":
                rows.append(dict(rows[at]))
                if "place" in rows[at]:
                    world.replace_places()
                if rows is world.journal:
                    rows[-1]["sequence"] = max(row["sequence"] for row in rows) + 1
            case "change" if "digest" in rows[at]:
                rows[at]["digest"] += 1
            case "swap" if at and rows[at].get("number") and rows[at - 1].get("number"):
                rows[at]["number"], rows[at - 1]["number"] = rows[at - 1]["number"], rows[at]["number"]
    world.replace_places()
    if dice.random() < 0.3:
        first = dice.randint(1, 20)
        world.tell_gap(first, first + 5, dice.choice(["damaged", "trimmed", "other"]), dice.choice(["main", "other"]))
    shift_numbers(world, dice.choice([0, 0, 65_520]))
    shift_sequences(world, dice.choice([0, 0, 65_520]))
    return world


def shift_numbers(world: World, by: int) -> None:
    """Numbers that go over the end of a bucket."""
    for row in (*world.offered, *world.acknowledged, *world.journal, *world.pushed):
        for name in ("number", "first_number", "last_number"):
            if row.get(name) is not None:
                row[name] += by


def shift_sequences(world: World, by: int) -> None:
    """Sequences that go over the end of a bucket, and a journal that has been trimmed."""
    for row in (*world.acknowledged, *world.journal, *world.pushed, *world.settled, *world.gaps):
        for name in ("sequence", "first_sequence", "last_sequence"):
            if row.get(name):
                row[name] += by


def together(worlds: dict[str, World]) -> World:
    """One world of many streams, each with lives of its own."""
    whole = World()
    for stream, world in worlds.items():
        for kind in Kind:
            rows = getattr(world, kind.value)
            lives = [{"life": f"{row['life']}-{stream}"} if "life" in row else {} for row in rows]
            getattr(whole, kind.value).extend(
                row | life | {"stream": stream} for row, life in zip(rows, lives, strict=True)
            )
    return whole


def test_many_spoiled_worlds_are_judged_as_a_plain_reading_judges_them(spark: SparkSession, tmp_path: Path) -> None:
    worlds = {"sound": sound_world()}
    for name, plant in PLANTED.items():
        worlds[name] = sound_world()
        plant(worlds[name])
    worlds |= {f"random-{seed}": random_world(seed) for seed in range(RANDOM_COUNT)}
    whole = together(worlds | {"covered": sound_world()})
    # Rows that were written out of order, in parts: what was pushed has to be sorted first.
    random.Random(1).shuffle(whole.pushed)
    conditions = {("covered", "other"): "sequence > 5", ("covered", "absent"): "source = 'a' AND number = 3"}
    evidence = Evidence.in_directory(whole.write(tmp_path / "evidence", 2), conditions)
    verdict = audit(spark, evidence, samples=SAMPLES)

    found: dict[str, Counter[Found]] = {stream: Counter() for stream in (*worlds, "covered")}
    for row in verdict.samples:
        keys = ("violation", "counts_as", "subscription", "source", "number", "sequence")
        found[str(row["stream"])][tuple(row[key] for key in keys)] += 1  # type: ignore[index]
    for stream, world in worlds.items():
        assert found[stream] == found_in(world), stream
    uncovered = {(name, subscription, row) for name, _, subscription, _, _, row in found["covered"]}
    assert uncovered == {("uncovered", "other", row) for row in range(1, 6)} | {("missing", "absent", 4)}
    assert not found["sound"]
    for name in PLANTED:
        assert name in {finding[0] for finding in found[name]}, name
    assert set(PLANTED) == set(VIOLATIONS) - {"uncovered"}
    assert verdict.outcome is Outcome.REFUTED


def test_the_plot_reaches_to_the_end_of_the_journal_and_the_page_says_what_was_judged(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = sound_world()
    overtaken(world)
    evidence = world.write(tmp_path / "evidence", 1)
    verdict = audit(spark, Evidence.in_directory(evidence), into=tmp_path / "report")
    end = max(row["sequence"] for row in world.journal)
    assert {place["last"] for place in verdict.places} == {end}
    assert max(int(place["bin"] or 0) for place in verdict.places) < BIN_COUNT - 1, "the violation lies before the end"
    page = (tmp_path / "report" / "report.html").read_text()
    for told in (f"Veredus {veredus.__version__}", f"{datetime.now(UTC):%Y-%m-%d}", str(evidence / "journal")):
        assert told in page


def test_what_a_node_and_its_peers_did_is_proved_from_their_recordings(
    spark: SparkSession, audited_node: Embedded, tmp_path: Path
) -> None:
    stream, count = "audited", 300
    keys, bodies = [b"key"] * count, [b"%d" % number for number in range(count)]
    with Recording(tmp_path / "raw", "desk") as recording, audited_node.publisher(stream, source="desk") as publisher:
        recording.offered(stream, "desk", 1, keys, bodies)
        for key, body in zip(keys, bodies, strict=True):
            publisher.publish(key, body)
        publisher.flush()
        recording.acknowledged(stream, "desk", 1, count, 1)
    with (
        Recording(tmp_path / "raw", "main") as recording,
        audited_node.subscribe(stream, subscriber="main", start=veredus.beginning(), until=count + 1) as subscription,
    ):
        for row in subscription:
            place = ([row.sequence], [row.source], [row.number])
            for name, is_wanted in (("main", True), ("even", row.number % 2 == 0)):
                if is_wanted:
                    recording.pushed(
                        stream, name, *place, redelivered=row.is_redelivered, keys=[row.key], bodies=[row.body]
                    )
                    recording.settled(stream, name, row.sequence, row.sequence)
    to_parquet(tmp_path / "raw", tmp_path / "evidence")
    covers = {(stream, "even"): "number % 2 = 0"}
    sides = Evidence.in_directory(tmp_path / "evidence", covers)
    evidence = replace(sides, journal=NodeJournal(audited_node.served.address, (stream,)))

    verdict = audit(spark, evidence, into=tmp_path / "report")

    assert verdict.outcome is Outcome.HOLDS, verdict.judged
    assert {judged.claim.name for judged in verdict.judged} == set(CLAIMS)
    assert verdict.rows[Kind.JOURNAL] == count
    (source,) = verdict.sources
    assert (source["offered"], source["acknowledged"], source["journal"]) == (count, count, count)
    assert [(row["subscription"], row["covered"], row["pushed"]) for row in verdict.subscriptions] == [
        ("even", count // 2, count // 2),
        ("main", count, count),
    ]
    assert "✓ holds" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert pq.read_table(tmp_path / "report" / "claims.parquet").column("outcome").to_pylist() == ["holds"] * len(
        CLAIMS
    )
    assert pq.read_table(tmp_path / "report" / "violations").num_rows == 0


def test_a_part_that_is_missing_leaves_unproved_what_rests_on_it(spark: SparkSession, tmp_path: Path) -> None:
    world = sound_world()
    pushed_twice(world)
    world.offered[3]["digest"] += 1
    evidence = world.write(tmp_path / "evidence", 2)
    (evidence / Kind.JOURNAL / "part-1.parquet").unlink()
    verdict = audit(spark, Evidence.in_directory(evidence))

    assert verdict.of("kept/journal").outcome is Outcome.NOT_PROVED
    assert verdict.of("kept/journal").violations["lost"].uncertain == 29
    assert "1 of 2 files are missing" in verdict.of("kept/journal").reasons[0]
    assert verdict.of("offered/subscriptions").outcome is Outcome.NOT_PROVED
    assert verdict.of("order/journal").outcome is Outcome.NOT_PROVED
    # What is there speaks all the same, and what needs no journal is proved.
    assert verdict.of("same/journal").outcome is Outcome.REFUTED
    assert verdict.of("once/subscriptions").outcome is Outcome.REFUTED
    assert verdict.of("order/subscriptions").outcome is Outcome.HOLDS


def test_a_flipped_bit_in_a_file_is_told_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    evidence = sound_world().write(tmp_path / "evidence")
    path = evidence / Kind.JOURNAL / "part-0.parquet"
    content = bytearray(path.read_bytes())
    digests = pq.read_metadata(path).row_group(0).column(4)
    content[digests.dictionary_page_offset + digests.total_compressed_size - 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(Refused) as refused:
        audit(spark, Evidence(journal=evidence / Kind.JOURNAL), claims=["once/journal"])
    assert refused.value.code == "damaged"
    assert str(path) in refused.value.message
