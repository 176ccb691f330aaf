"""What a filter leaves of a record: worked out once for all who have the filter, and kept within a bound."""

from weakref import ref

import numpy as np
import pytest

from tests.streams.rig import incarnation
from veredus.delivery.batch import BatchHeader
from veredus.delivery.record import Envelope, RecordKind, write_envelope
from veredus.journal.exchange import PlacedRecord
from veredus.matching import Filter
from veredus.sim.content import Identity, batch_record
from veredus.streams import examine
from veredus.streams.examine import Examiner, wanted_by
from veredus.streams.facts import StreamConfig, StreamCreated
from veredus.streams.shares import Shares
from veredus.streams.stream import Stream
from veredus.streams.tail import TailBudget

EVEN, ODD = wanted_by(Filter(where="even")), wanted_by(Filter(where="not even"))
COUNT = 4


def placed(index: int) -> PlacedRecord:
    """One of many records behind one another, of `COUNT` publications each."""
    first = 1 + index * COUNT
    identities = [Identity("alpha", number) for number in range(first, first + COUNT)]
    record = batch_record(BatchHeader(0, 0, 0, 0, 0, 1, 1, 1, 0, first, 0, 0), identities)
    write_envelope(record, Envelope(RecordKind.BATCH, 0, examine.read_size(record), 0, first, 0))
    return PlacedRecord(first, COUNT, 0, memoryview(record))


def outcome(examiner: Examiner, stream: Stream, record: PlacedRecord, wanted: examine.Wanted) -> object:
    """What a filter leaves of a whole record."""
    return examiner.examine(stream, record, wanted, record.first_sequence, record.first_sequence + COUNT - 1, ())


@pytest.fixture
def stream() -> Stream:
    """A stream without anything."""
    return Stream(StreamCreated(1, "s", incarnation(1), StreamConfig(), 0, "local"), TailBudget(1 << 20), Shares())


def test_what_a_filter_leaves_of_a_record_is_worked_out_once(stream: Stream) -> None:
    examiner, record = Examiner(), placed(0)
    assert outcome(examiner, stream, record, EVEN) is outcome(examiner, stream, record, EVEN)
    assert outcome(examiner, stream, record, ODD) is not outcome(examiner, stream, record, EVEN)


def test_an_outcome_that_is_kept_keeps_nothing_that_was_read_from_the_journal_with_its_record(stream: Stream) -> None:
    examiner, record = Examiner(), placed(0)
    read = np.zeros(10 * len(record.memory), np.uint8)
    read[: len(record.memory)] = record.memory
    memory, everything = ref(read), wanted_by(Filter(where="even or not even"))
    excerpt = outcome(examiner, stream, record._replace(memory=read.data[: len(record.memory)]), everything)
    del read
    assert isinstance(excerpt, examine.Excerpt)
    assert excerpt.memory == record.memory
    outcome(examiner, stream, placed(1), everything)
    assert memory() is None


def test_the_oldest_outcomes_go_when_those_that_are_kept_take_too_much(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [placed(index) for index in range(20)]
    last = [outcome(Examiner(), stream, record, EVEN) for record in records[-5:]]
    size = sum(512 + len(excerpt.memory) for excerpt in last if isinstance(excerpt, examine.Excerpt))
    monkeypatch.setattr(examine, "_KEPT_SIZE_MAX", size)
    examiner = Examiner()
    kept = [outcome(examiner, stream, record, EVEN) for record in records]
    again = [outcome(examiner, stream, record, EVEN) for record in records[-5:]]
    assert all(one is other for one, other in zip(kept[-5:], again, strict=True)), "the last five are kept"
    assert outcome(examiner, stream, records[-6], EVEN) is not kept[-6], "and the one before is not"
