"""Appending: what is answered, in which order, as durable as asked, and what happens when the disk will not."""

from itertools import pairwise

import pytest

from tests.journal.rig import DiskOrder, Rig, batch_entry
from veredus.delivery.record import read_envelope
from veredus.journal.checkpoint import CHECKPOINT_NAME, COPY_NAME
from veredus.journal.exchange import (
    Appended,
    AppendFailed,
    CheckpointRequested,
    CheckpointWanted,
    CreateSegment,
    GroupFailed,
    GroupWritten,
    LogFailed,
    SegmentFailed,
    SegmentLacking,
    SpaceMissing,
    SpaceReturned,
    SyncMode,
    WriteFile,
    WriteGroup,
    fact_entry,
)
from veredus.journal.phases import Phase
from veredus.journal.settings import LogSettings
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30)


def test_what_was_appended_can_be_read_in_order() -> None:
    rig = Rig()
    tokens = [rig.append(batch_entry(7, 1 + 3 * i, 3)) for i in range(10)]
    assert rig.said == []
    rig.settle()
    assert rig.said == [Appended(token, SyncMode.GROUP) for token in tokens]
    records = rig.read_all(7)
    assert [(r.first_sequence, r.count) for r in records] == [(1 + 3 * i, 3) for i in range(10)]
    assert all(b"7:%d:0" % r.first_sequence in bytes(r.memory) for r in records)
    envelopes = [read_envelope(r.memory) for r in records]
    assert [envelope and envelope.first_sequence for envelope in envelopes] == [r.first_sequence for r in records]


def test_many_segments_are_filled_and_read_through_their_indexes() -> None:
    rig = Rig()
    for i in range(300):
        rig.append(batch_entry(1 + i % 3, 1 + i // 3, size=2000), fact_entry(b"fact", 5))
        if i % 7 == 0:
            rig.settle()
    rig.settle()
    assert rig.log.segment_count > 5
    for stream_id in (1, 2, 3):
        assert [r.first_sequence for r in rig.read_all(stream_id, size_max=5000)] == list(range(1, 101))


def test_what_came_together_is_one_group_and_what_came_later_the_next() -> None:
    rig = Rig()
    rig.append(batch_entry(1, 1))
    rig.settle()
    first = [rig.append(batch_entry(1, 2)), rig.append(batch_entry(1, 3))]
    rig.wake()
    (group,) = rig.pending
    assert isinstance(group, WriteGroup)
    assert len(group.buffers) == 3, "the record that opens it, and two more"
    later = rig.append(batch_entry(1, 4))
    rig.wake()
    assert len(rig.pending) == 1, "one group is under way at a time"
    rig.step()
    assert all(map(rig.is_appended, first))
    assert not rig.is_appended(later)
    rig.settle()
    assert rig.is_appended(later)


def test_nothing_can_be_read_before_it_is_durable() -> None:
    rig = Rig()
    rig.append(batch_entry(1, 1))
    rig.settle()
    rig.append(batch_entry(1, 2))
    rig.wake()
    assert rig.log.extent(1).last_sequence == 1
    rig.settle()
    assert rig.log.extent(1).last_sequence == 2


def test_a_barrier_is_answered_behind_all_before_it() -> None:
    rig = Rig()
    assert rig.is_appended(rig.append()), "nothing is on its way"
    batch, barrier = rig.append(batch_entry(1, 1)), rig.append()
    assert not rig.is_appended(barrier)
    rig.settle()
    assert [effect.token for effect in rig.said if isinstance(effect, Appended)][-2:] == [batch, barrier]


def test_a_record_larger_than_a_segment_gets_one_of_its_own() -> None:
    rig = Rig(SMALL)
    for sequence, size in enumerate((100, 50_000, 100, 200_000), 1):
        rig.append(batch_entry(1, sequence, size=size))
        rig.settle()
    assert [len(r.memory) > 40_000 for r in rig.read_all(1)] == [False, True, False, True]
    again, found = rig.reopened()
    assert len(found.views) == 4
    assert len(again.read_all(1)) == 4


def test_an_append_over_the_limit_is_refused_and_changes_nothing() -> None:
    rig = Rig(LogSettings(segment_size=16 << 10, append_size_max=1000))
    token = rig.append(batch_entry(1, 1, size=2000))
    answer = rig.answer(token)
    assert isinstance(answer, AppendFailed)
    assert answer.code == "too-large"
    assert rig.log.unsynced_size == 0


def test_the_next_segment_is_made_before_it_is_needed() -> None:
    rig = Rig(SMALL)
    created: list[int] = []
    for sequence in range(1, 120):
        rig.append(batch_entry(1, sequence, size=200))
        rig.wake()
        while rig.pending:
            order = rig.pending[0]
            if isinstance(order, CreateSegment):
                created.append(order.segment)
                assert order.segment <= rig.log.segment_count + 1
            rig.step()
        if created[-1] > rig.log.segment_count:
            assert rig.log.position.offset >= 8 << 10, "half of the open one is full"
    assert len(created) > 3


def test_with_an_interval_a_sync_follows_what_was_written() -> None:
    settings = LogSettings(segment_size=64 << 10, sync=SyncMode.INTERVAL, interval_ns=10_000_000)
    rig = Rig(settings)
    token = rig.append(batch_entry(1, 1))
    rig.wake()
    rig.step()
    rig.wake()
    (group,) = [order for order in rig.pending if isinstance(order, WriteGroup)]
    assert not group.is_synced
    rig.settle()
    assert rig.answer(token) == Appended(token, SyncMode.INTERVAL)
    rig.time_ns += 10_000_000
    rig.wake()
    (sync,) = [order for order in rig.pending if isinstance(order, WriteGroup)]
    assert (sync.is_synced, list(sync.buffers)) == (True, [])
    rig.settle()
    rig.time_ns += 10_000_000
    rig.wake()
    assert not rig.pending, "nothing was written since"


def test_without_syncs_the_answer_says_so() -> None:
    rig = Rig(LogSettings(segment_size=16 << 10, sync=SyncMode.NONE))
    token = rig.append(batch_entry(1, 1))
    rig.settle()
    assert rig.answer(token) == Appended(token, SyncMode.NONE)


def carried_out(rig: Rig) -> list[DiskOrder]:
    """Settle; what the disk was asked to do on the way, in order."""
    orders = list[DiskOrder]()
    rig.wake()
    while rig.pending:
        orders.append(rig.pending[0])
        rig.step()
        rig.wake()
    return orders


def test_without_syncs_a_segment_is_durable_before_the_next_one_is_written_to() -> None:
    rig = Rig(LogSettings(segment_size=16 << 10, sync=SyncMode.NONE))
    groups = list[WriteGroup]()
    for sequence in range(1, 60):
        rig.append(batch_entry(1, sequence, size=1000))
        groups += [order for order in carried_out(rig) if isinstance(order, WriteGroup)]
    last_ones = [old for old, new in pairwise(groups) if old.segment != new.segment]
    assert len(last_ones) > 2
    assert all(group.is_synced for group in last_ones)


def test_without_syncs_a_checkpoint_is_written_once_all_before_it_is_durable() -> None:
    rig = Rig(LogSettings(segment_size=16 << 10, sync=SyncMode.NONE))
    rig.append(batch_entry(1, 1))
    (group,) = [order for order in carried_out(rig) if isinstance(order, WriteGroup)]
    assert not group.is_synced
    rig.tell(CheckpointRequested(Gathered(b"state")))
    first, *files = carried_out(rig)
    assert isinstance(first, WriteGroup)
    assert first.is_synced
    assert [order.name for order in files if isinstance(order, WriteFile)] == [CHECKPOINT_NAME, COPY_NAME]


def test_a_full_disk_refuses_publications_keeps_facts_and_reads_and_recovers_by_itself() -> None:
    rig = Rig(SMALL)
    rig.disk.size_max = 33 << 10
    tokens = []
    for sequence in range(1, 200):
        tokens.append(rig.append(batch_entry(1, sequence, size=200)))
        rig.settle()
        if not rig.log.has_space:
            break
    answers = [rig.answer(token) for token in tokens]
    taken = [answer for answer in answers if isinstance(answer, Appended)]
    assert all(isinstance(answer, Appended) for answer in answers[: len(taken)])
    refused = answers[len(taken)]
    assert isinstance(refused, AppendFailed)
    assert refused.code == "disk-full"
    assert sum(isinstance(effect, SpaceMissing) for effect in rig.said) == 1
    assert len(rig.read_all(1)) == len(taken)
    fact = rig.append(fact_entry(b"a trim must be possible", 1))
    rig.settle()
    assert rig.is_appended(fact), "facts go into the reserve"
    assert isinstance(rig.answer(rig.append(batch_entry(1, len(taken) + 1, size=200))), AppendFailed)
    rig.disk.size_max = 1 << 30
    rig.time_ns += SMALL.retry_ns
    rig.settle()
    assert isinstance(rig.said[-1], SpaceReturned)
    token = rig.append(batch_entry(1, len(taken) + 1, size=200))
    rig.settle()
    assert rig.is_appended(token)
    assert len(rig.read_all(1)) == len(taken) + 1


def test_a_segment_that_could_not_be_made_ahead_is_no_matter_until_it_is_needed() -> None:
    rig = Rig(SMALL)
    rig.append(batch_entry(1, 1, size=9000))
    rig.settle()
    rig.disk.size_max = 0
    rig.tell(SegmentFailed(10_000, "io-error", "a stray answer"))
    token = rig.append(batch_entry(1, 2))
    rig.settle()
    assert rig.is_appended(token)
    assert rig.log.has_space


def test_why_a_segment_cannot_be_made_is_told_at_once_when_it_changes_and_where_publications_are_refused() -> None:
    rig = Rig(SMALL)
    rig.disk.size_max, rig.disk.refusal = 17 << 10, ("io-error", "Permission denied")
    sequence = 0
    while rig.log.has_space:
        sequence += 1
        rig.append(batch_entry(1, sequence, size=900))
        rig.settle()
    for refusal in (("io-error", "Permission denied"), ("disk-full", "No space left on device")):
        rig.disk.refusal = refusal
        rig.time_ns += SMALL.retry_ns
        rig.settle()
    told = [effect for effect in rig.said if isinstance(effect, SegmentLacking | SpaceMissing)]
    assert told == [
        SegmentLacking(2, SMALL.segment_size, "io-error", "Permission denied"),
        SpaceMissing("io-error", "Permission denied"),
        SegmentLacking(2, SMALL.segment_size, "disk-full", rig.disk.refusal[1]),
    ]
    assert rig.log.why_full == rig.disk.refusal[1]
    rig.disk.size_max = 1 << 30
    rig.time_ns += SMALL.retry_ns
    rig.settle()
    assert rig.said[-1] == SpaceReturned()
    assert rig.log.why_full == ""


def test_facts_that_do_not_fit_the_reserve_are_refused_too() -> None:
    rig = Rig(SMALL)
    rig.disk.size_max = 17 << 10
    tokens = [rig.append(fact_entry(bytes(500), 1)) for _ in range(60)]
    rig.settle()
    answers = [rig.answer(token) for token in tokens]
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[-1], AppendFailed)
    assert rig.log.unsynced_size == 0


@pytest.mark.parametrize("code", ["io-error", "disk-full"])
def test_a_failed_write_or_sync_fails_the_log_and_is_never_tried_again(code: str) -> None:
    rig = Rig(SMALL)
    before = rig.append(batch_entry(1, 1))
    rig.settle()
    doubtful = rig.append(batch_entry(1, 2))
    rig.wake()
    waiting = rig.append(batch_entry(1, 3))
    group = rig.pending.popleft()
    assert isinstance(group, WriteGroup)
    rig.tell(GroupFailed(group.token, code, "Input/output error"))
    assert rig.log.phase is Phase.FAILED
    assert [effect for effect in rig.said if isinstance(effect, LogFailed)]
    assert rig.is_appended(before)
    assert [effect for effect in rig.said if getattr(effect, "token", 0) == doubtful] == [], "it is in doubt"
    for token in (waiting, rig.append(batch_entry(1, 4)), rig.append()):
        answer = rig.answer(token)
        assert isinstance(answer, AppendFailed)
        assert answer.code == "journal-failed"
    rig.tell(GroupWritten(group.token))
    rig.time_ns += 10**10
    rig.wake()
    assert not rig.pending
    assert [r.first_sequence for r in rig.read_all(1)] == [1]


def test_a_checkpoint_is_wanted_once_when_enough_was_appended() -> None:
    rig = Rig(LogSettings(segment_size=64 << 10, checkpoint_interval_size=5_000))
    for sequence in range(1, 40):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    assert sum(isinstance(effect, CheckpointWanted) for effect in rig.said) == 1
    rig.checkpoint()
    for sequence in range(40, 80):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    assert sum(isinstance(effect, CheckpointWanted) for effect in rig.said) == 2


def test_a_checkpoint_is_wanted_once_behind_so_many_records_however_small_they_are() -> None:
    rig = Rig(LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30, checkpoint_interval_count=30))
    for sequence in range(1, 40):
        rig.append(batch_entry(1, sequence, size=20))
        rig.settle()
    assert sum(isinstance(effect, CheckpointWanted) for effect in rig.said) == 1
    rig.checkpoint()
    for sequence in range(40, 80):
        rig.append(batch_entry(1, sequence, size=20))
        rig.settle()
    assert sum(isinstance(effect, CheckpointWanted) for effect in rig.said) == 2


def test_a_stray_answer_of_the_disk_is_ignored() -> None:
    rig = Rig()
    rig.tell(GroupWritten(77))
    rig.tell(GroupFailed(77, "io-error", "not ours"))
    assert rig.log.phase is Phase.RUNNING
    assert rig.said == []


def until_answered(rig: Rig) -> None:
    """Carry out what was ordered until something is answered."""
    while not rig.said:
        rig.step()


def test_what_one_group_made_durable_is_answered_a_part_at_a_time_and_in_order() -> None:
    rig = Rig(LogSettings(segment_size=64 << 10, answer_count_max=3))
    tokens = [rig.append(batch_entry(7, 1 + i)) for i in range(8)]
    tokens.append(rig.append())
    size = rig.log.unsynced_size
    until_answered(rig)
    assert rig.said == [Appended(token, SyncMode.GROUP) for token in tokens[:3]]
    assert rig.log.is_answering
    assert rig.log.unsynced_size == size * 5 // 8
    later = rig.append(batch_entry(7, 9))
    rig.tell(DeadlineReached())
    assert len(rig.said) == 6
    assert not rig.pending
    rig.wake()
    assert rig.said == [Appended(token, SyncMode.GROUP) for token in tokens]
    assert not rig.log.is_answering
    assert not rig.log.is_answered
    rig.settle()
    assert rig.answer(later) == Appended(later, SyncMode.GROUP)
    assert rig.log.is_answered


def test_large_facts_are_answered_one_by_one() -> None:
    rig = Rig(LogSettings(segment_size=1 << 20, answer_size_max=1000))
    tokens = [rig.append(fact_entry(bytes(1000), 5)) for _ in range(3)]
    rig.append(batch_entry(7, 1, size=2000))
    until_answered(rig)
    assert rig.said == [Appended(tokens[0], SyncMode.GROUP)]


def test_no_checkpoint_is_wanted_while_something_is_in_the_journal_and_not_answered() -> None:
    rig = Rig(LogSettings(segment_size=64 << 10, answer_count_max=3, checkpoint_interval_size=1000))
    for i in range(8):
        rig.append(batch_entry(7, 1 + i, size=500))
    until_answered(rig)
    assert [effect for effect in rig.said if isinstance(effect, CheckpointWanted)] == []
    rig.wake()
    assert len(rig.said) == 9
    assert isinstance(rig.said[-1], CheckpointWanted)
