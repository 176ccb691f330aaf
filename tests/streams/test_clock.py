"""A clock that was ahead and is set right: append times stand still, and that is told."""

from tests.streams.rig import Rig
from veredus.kernel.effects import Note

DAY_NS = 86_400 * 1_000_000_000


def clock_notes(rig: Rig) -> list[dict[str, object]]:
    return [note.fields for note in rig.notes if isinstance(note, Note) and note.event == "clock-behind"]


def test_a_clock_that_lies_behind_what_it_said_is_told_of_once_with_how_far() -> None:
    rig = Rig()
    rig.time_ns += DAY_NS
    grant = rig.attach(1)
    rig.publish(grant, 1)
    assert (clock_notes(rig), rig.floor.counts.clock_behind_us) == ([], 0)
    tomorrow_us = rig.floor.tables.streams["s"].append_time_us
    rig.time_ns -= DAY_NS
    for number in (2, 3):
        rig.publish(grant, number)
    assert rig.floor.tables.streams["s"].append_time_us == tomorrow_us, "it never falls"
    assert clock_notes(rig) == [{"stream": "s", "behind_s": 86_400.0}]
    assert rig.floor.counts.clock_behind_us == DAY_NS // 1000
    rig.time_ns += 2 * DAY_NS
    rig.publish(grant, 4)
    assert rig.floor.counts.clock_behind_us == 0


def test_a_clock_that_is_slewed_by_little_is_not_worth_a_word() -> None:
    rig = Rig(wall_ns=0)
    grant = rig.attach(1)
    rig.publish(grant, 1)
    rig.time_ns -= 900_000_000
    rig.publish(grant, 2)
    assert clock_notes(rig) == []
