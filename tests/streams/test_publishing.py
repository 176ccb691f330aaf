"""The way in: numbers, epochs, tokens, and a disk that is full."""

from dataclasses import replace

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x


def test_nothing_is_confirmed_before_it_is_durable() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.offer(grant, 1, 3)
    assert rig.said_to(1, x.ConfirmTaken) == []
    rig.carry_out()
    assert rig.said_to(1, x.ConfirmTaken) == [x.ConfirmTaken(1, 3, 1, False, x.Durability.GROUP)]


def test_a_batch_offered_again_is_confirmed_as_a_duplicate_with_its_first_sequence() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3)
    rig.publish(grant, 4, 2)
    again = rig.publish(grant, 1, 3)
    assert (again.is_duplicate, again.first_sequence, again.last_number) == (True, 1, 3)
    assert rig.floor.tables.streams["s"].head_durable == 5


def test_a_duplicate_of_what_is_still_on_its_way_is_not_confirmed_before_it() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.offer(grant, 1, 3)
    rig.offer(grant, 1, 3)
    assert rig.said_to(1, x.ConfirmTaken) == []
    rig.carry_out()
    assert [(c.is_duplicate, c.first_sequence) for c in rig.said_to(1, x.ConfirmTaken)] == [(False, 1), (True, 1)]


def test_a_gap_is_refused_with_the_last_number() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3)
    refused = rig.publish(grant, 5, 1)
    assert (refused.code, refused.last_number, refused.first_number) == ("gap", 3, 5)


def test_a_batch_that_straddles_the_last_number_is_refused_with_it() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3)
    refused = rig.publish(grant, 2, 4)
    assert (refused.code, refused.last_number) == ("straddles", 3)
    assert rig.floor.tables.streams["s"].head_durable == 3


def test_a_duplicate_is_recognised_after_a_kill_however_long_ago_it_was_taken() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for number in range(1, 100):
        rig.publish(grant, number)
    rig.restart()
    again = rig.attach(1, epoch=grant.epoch)
    assert again.last_number == 99
    taken = rig.publish(again, 1)
    assert (taken.is_duplicate, taken.first_sequence) == (True, 0)
    assert rig.floor.tables.streams["s"].head_durable == 99


def test_what_was_offered_and_not_written_is_offered_again_after_a_kill() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    rig.offer(grant, 3, 2)
    rig.restart()
    again = rig.attach(1, epoch=grant.epoch)
    assert again.last_number == 2
    assert rig.publish(again, 3, 2).first_sequence == 3


def test_a_newer_incarnation_takes_over_and_the_older_is_fenced_once() -> None:
    rig = Rig()
    old = rig.attach(1)
    new = rig.attach(2, who=2)
    assert new.epoch == old.epoch + 1
    assert [fence.epoch for fence in rig.said_to(1, x.Fence)] == [new.epoch]
    rig.offer(old, 1)
    rig.carry_out()
    assert rig.said_to(1, x.ConfirmTaken) == []
    assert rig.floor.tables.streams["s"].head_durable == 0


def test_a_batch_signed_with_an_epoch_above_the_granted_one_ends_its_channel_and_fences_nobody() -> None:
    rig = Rig()
    rig.attach(1)
    grant = rig.attach(2, who=2)
    rig.publish(grant, 1)
    rig.offer(replace(grant, epoch=grant.epoch + 1), 2, 1)
    assert [refused.code for refused in rig.said_to(2, x.Refuse)] == ["wrong-ids"]
    assert rig.said_to(2, x.Fence) == []


def test_a_stale_epoch_is_fenced_also_after_a_kill() -> None:
    rig = Rig()
    old = rig.attach(1)
    rig.attach(2, who=2)
    rig.restart()
    assert isinstance(rig.attach(3, epoch=old.epoch), x.Fence)


def test_whoever_has_a_newer_epoch_than_the_journal_is_told_of_no_other_publisher() -> None:
    rig = Rig()
    rig.attach(1)
    told = rig.attach(2, who=2, epoch=7)
    assert isinstance(told, x.Fence)
    assert told.epoch == 1
    assert told.message.startswith(
        "source 'alpha' has epoch 1 here, and this publisher was granted epoch 7: the stream"
    )
    assert rig.said_to(1, x.Fence) == []


def test_whoever_comes_back_to_a_stream_that_was_created_again_does_not_fence_its_new_source() -> None:
    rig = Rig()
    old = rig.attach(1, who=1)
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    new = rig.attach(2, who=2)
    assert new.epoch == old.epoch
    assert isinstance(rig.attach(3, who=1, epoch=old.epoch), x.Fence)
    assert rig.said_to(2, x.Fence) == []
    rig.restart()
    assert isinstance(rig.attach(4, who=1, epoch=old.epoch), x.Fence)


def test_whoever_comes_back_to_a_deleted_stream_does_not_make_it_again() -> None:
    rig = Rig()
    epoch = rig.attach(1).epoch
    known = rig.subscribe(5).stream_incarnation
    rig.subscribe(6, "bob")
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    asked = (
        x.SourceAttachRequested(11, "local", "s", "alpha", incarnation(1), epoch),
        x.SourceAttachRequested(12, "local", "s", "", incarnation(1), stream_incarnation=known),
        x.SubscribeRequested(15, "local", "s", stream_incarnation=known),
        x.SubscribeRequested(16, "local", "s", "bob", "main", incarnation=incarnation(1), epoch=1),
    )
    for event in asked:
        (refusal,) = rig.do(event)
        assert (type(refusal), refusal.code) == (x.Refuse, "stream-deleted")
        assert refusal.message == "stream 's' was deleted"
    assert "s" not in rig.floor.tables.streams


def test_whoever_names_the_stream_that_it_publishes_to_is_told_that_another_one_has_its_name() -> None:
    rig = Rig()
    rig.do(x.SourceAttachRequested(1, "local", "s", "", incarnation(1)))
    known = rig.said_to(1, x.GrantSource)[-1].stream_incarnation
    again = x.SourceAttachRequested(2, "local", "s", "", incarnation(1), stream_incarnation=known)
    rig.do(again)
    assert rig.said_to(2, x.GrantSource)[-1].stream_incarnation == known
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    rig.attach(3)
    (refusal,) = rig.do(x.SourceAttachRequested(4, "local", "s", "", incarnation(1), stream_incarnation=known))
    assert (refusal.code, refusal.is_final) == ("stream-replaced", True)
    assert refusal.message.startswith("stream 's' was deleted and created again")


def test_who_comes_back_to_a_node_with_another_journal_is_not_told_that_the_stream_was_deleted() -> None:
    rig = Rig()
    elsewhere = b"another journal!"
    source = x.SourceAttachRequested(11, "local", "s", "alpha", incarnation(1), 1)
    subscriber = x.SubscribeRequested(15, "local", "s", "bob", "main", incarnation=incarnation(1), epoch=1)
    known = x.SubscribeRequested(16, "local", "s", stream_incarnation=elsewhere)
    for event in (source, subscriber, known):
        (refusal,) = rig.do(event)
        assert (type(refusal), refusal.code) == (x.Refuse, "stream-deleted")
        assert refusal.message.startswith("stream 's' is not at this node any more: it was deleted long ago or")
        assert "this node runs on another directory than before" in refusal.message
    rig.attach(1)
    (refusal,) = rig.do(known)
    assert (type(refusal), refusal.code) == (x.Refuse, "stream-replaced")
    assert refusal.message.startswith("stream 's' is another one now (it was deleted long ago or")


def test_a_retried_attach_gets_the_same_epoch() -> None:
    rig = Rig()
    assert rig.attach(1).epoch == rig.attach(2).epoch == 1
    rig.restart()
    assert rig.attach(3).epoch == 1


@pytest.mark.parametrize("kept_by", ["records", "checkpoint"])
def test_the_resume_token_comes_back_with_the_number_that_it_speaks_up_to(kept_by: str) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3, token=b"line 3")
    rig.publish(grant, 4, 2)
    if kept_by == "checkpoint":
        rig.checkpoint()
    rig.restart()
    again = rig.attach(1, epoch=grant.epoch)
    assert (again.token, again.token_number, again.last_number) == (b"line 3", 3, 5)


def test_a_full_disk_refuses_the_batch_and_gives_its_numbers_and_sequences_back() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.disk.size_max = 0
    number = 1
    while not isinstance(said := rig.publish(grant, number, 30), x.RefuseBatch):
        number += 30
    assert said.code == "disk-full"
    rig.disk.size_max = 1 << 40
    rig.time_ns += 10_000_000_000
    rig.carry_out()
    taken = rig.publish(grant, number, 30)
    assert (taken.first_sequence, taken.is_duplicate) == (number, False)
    rig.subscribe(9)
    assert rig.pushed(9) == list(range(1, number + 30))


def test_a_repeated_batch_is_not_confirmed_when_the_journal_refused_the_one_that_it_repeats() -> None:
    rig = Rig()
    grant, other = rig.attach(1), rig.attach(2, stream="t")
    rig.is_full = True
    rig.offer(grant, 1, 3)
    rig.is_full = False
    rig.offer(other, 1)
    rig.offer(grant, 1, 3)
    rig.carry_out()
    assert [(refusal.code, refusal.first_number, refusal.last_number) for refusal in rig.said_to(1, x.RefuseBatch)] == [
        ("disk-full", 1, 0)
    ] * 2
    assert rig.said_to(1, x.ConfirmTaken) == []
    taken = rig.publish(grant, 1, 3)
    assert (taken.first_sequence, taken.is_duplicate) == (1, False)


def test_a_source_that_the_full_disk_would_not_attach_is_not_fenced_by_its_own_attempt() -> None:
    rig = Rig()
    grant = rig.attach(1)
    filler = rig.attach(2, source="filler")
    rig.disk.size_max = 0
    number = 1
    while not isinstance(rig.publish(filler, number, 30, who="filler"), x.RefuseBatch):
        number += 30
    while not isinstance(rig.attach(3, source="beta", who=number), x.Refuse):
        number += 1
    for attempt in range(3):
        again = rig.attach(10 + attempt, epoch=grant.epoch)
        assert not isinstance(again, x.Fence)
    rig.disk.size_max = 1 << 40
    rig.time_ns += 10_000_000_000
    rig.carry_out()
    assert rig.attach(20, epoch=grant.epoch).epoch == grant.epoch


def test_a_source_that_attaches_again_by_another_session_is_told_so_by_the_first() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.offer(grant, 1, 3)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(1), 1))
    rig.carry_out()
    assert rig.said_to(1, x.ConfirmTaken) == []
    assert [(said.code, said.is_final) for said in rig.said_to(1, x.Refuse)] == [("attached-again", True)]
    rig.tell(x.SessionClosed(2))
    assert rig.attach(1, epoch=1).last_number == 3


def test_the_first_request_of_a_source_that_was_fenced_fences_nobody_when_it_comes_late() -> None:
    rig = Rig()
    rig.attach(1)
    grant = rig.attach(2, who=2)
    assert isinstance(rig.attach(3, who=1), x.Fence)
    assert rig.said_to(2, x.Fence) == []
    assert rig.publish(grant, 1).last_number == 1


def test_an_anonymous_source_counts_anew_on_each_attachment() -> None:
    rig = Rig()
    first = rig.attach(1, source="")
    assert first.source_id == 0
    assert rig.publish(first, 1, 2).first_sequence == 1
    second = rig.attach(2, source="")
    assert rig.publish(second, 1, 2).first_sequence == 3
    assert rig.publish(second, 4).code == "gap"


def test_a_sparse_source_may_leave_numbers_out_and_never_goes_back() -> None:
    rig = Rig()
    said = rig.do(x.SourceAttachRequested(1, "local", "s", "alpha", incarnation(1), is_sparse=True))
    grant = said[-1]
    assert rig.publish(grant, 10, 2).first_sequence == 1
    assert rig.publish(grant, 50).first_sequence == 3
    assert rig.publish(grant, 20).is_duplicate


def test_whoever_publishes_to_a_stream_that_is_deleted_is_told() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    rig.tell(x.AdminRequested(5, 1, "local", "stream.delete", {"name": "s"}))
    rig.offer(grant, 3)
    rig.carry_out()
    assert [refusal.code for refusal in rig.said_to(1, x.Refuse)] == ["stream-deleted"]
    assert [taken.last_number for taken in rig.said_to(1, x.ConfirmTaken)] == [2]
    assert rig.attach(2).last_number == 0


def test_who_is_taken_over_from_first_hears_of_all_that_it_offered_before() -> None:
    rig = Rig()
    old = rig.attach(1)
    rig.offer(old, 1, 3)
    rig.offer(old, 4, 2)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.offer(old, 6)
    rig.carry_out()
    to_old = [said for said in rig.said if said.session == 1 and not isinstance(said, x.GrantSource)]
    assert [type(said) for said in to_old] == [x.ConfirmTaken, x.ConfirmTaken, x.Fence]
    assert [said.last_number for said in to_old[:2]] == [3, 5]
    assert rig.said_to(2, x.GrantSource)[0].last_number == 5, "nothing comes behind a newer epoch"


def test_nobody_is_fenced_by_an_epoch_that_the_journal_does_not_take() -> None:
    rig = Rig()
    old = rig.attach(1)
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.is_full = False
    rig.offer(old, 1, 2)
    rig.tell(x.TokenStoreRequested(1, 7, 0, b"line 0"))
    rig.carry_out()
    assert rig.said_to(1, x.Fence) == []
    assert [said.code for said in rig.said_to(2, x.Refuse)] == ["disk-full"]
    assert [(said.first_number, said.code) for said in rig.said_to(1, x.RefuseBatch)] == [(1, "disk-full")]
    assert [(said.request, said.code, said.is_final) for said in rig.said_to(1, x.Refuse)] == [(7, "disk-full", False)]
    assert rig.publish(old, 1, 2).last_number == 2
    assert rig.attach(3, who=3).epoch == 2
    assert [fence.epoch for fence in rig.said_to(1, x.Fence)] == [2]


def test_who_comes_back_while_its_epoch_is_refused_is_not_granted_it() -> None:
    rig = Rig()
    rig.attach(1)
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.is_full = False
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(2), 0))
    rig.carry_out()
    assert (rig.said_to(3, x.GrantSource), [said.code for said in rig.said_to(3, x.Refuse)]) == ([], ["disk-full"])
    assert rig.said_to(1, x.Fence) == []
    assert rig.attach(4, who=2).epoch == 2
    assert [fence.epoch for fence in rig.said_to(1, x.Fence)] == [2]


@pytest.mark.parametrize("epoch", [0, 1])
def test_who_comes_back_while_somebody_takes_over_is_fenced_when_the_journal_has_that(epoch: int) -> None:
    rig = Rig()
    rig.attach(1)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.tell(x.SessionClosed(1))
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(1), epoch))
    assert [said for said in rig.said if said.session == 3] == []
    rig.carry_out()
    assert [(type(said), said.epoch) for said in rig.said if said.session == 3] == [(x.Fence, 2)]
    assert rig.publish(rig.said_to(2, x.GrantSource)[0], 1).last_number == 1


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("is_gone", [True, False])
def test_who_comes_back_while_somebody_takes_over_goes_on_where_the_journal_refuses_that(
    epoch: int, is_gone: bool
) -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 3)
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.is_full = False
    rig.tell(*[x.SessionClosed(1)] * is_gone)
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(1), epoch))
    rig.carry_out()
    assert [said.code for said in rig.said_to(2, x.Refuse)] == ["disk-full"]
    assert [said.code for said in rig.said_to(1, x.Refuse)] == ["attached-again"] * (not is_gone)
    (back,) = [said for said in rig.said if said.session == 3]
    assert (back.epoch, back.last_number) == (1, 3)
    assert rig.publish(back, 4).last_number == 4


def test_who_comes_back_is_told_that_it_cannot_be_stored_where_its_wait_fails() -> None:
    rig = Rig()
    rig.attach(1)
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(1), 1))
    rig.carry_out()
    assert [said.code for said in rig.said_to(3, x.Refuse)] == ["disk-full"]
    assert rig.said_to(3, x.Fence) == []
    rig.is_full = False
    assert rig.attach(4, epoch=1).epoch == 1


def test_nobody_is_taken_over_from_by_an_epoch_that_the_journal_refused_though_it_asked_for_one_in_between() -> None:
    rig = Rig()
    rig.attach(1)
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(3), 0))
    rig.is_full = False
    rig.tell(x.SourceAttachRequested(4, "local", "s", "alpha", incarnation(2), 0))
    rig.carry_out()
    assert [said.code for said in (*rig.said_to(2, x.Refuse), *rig.said_to(3, x.Refuse))] == ["disk-full"] * 2
    assert [grant.epoch for grant in rig.said_to(4, x.GrantSource)] == [2]
    assert [fence.epoch for fence in rig.said_to(1, x.Fence)] == [2]
    assert rig.attach(5, who=3).epoch == 3
    assert isinstance(rig.attach(6, who=2), x.Fence)


def test_who_waits_for_what_becomes_of_a_newer_epoch_and_leaves_is_told_nothing() -> None:
    rig = Rig()
    rig.attach(1)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(1), 1))
    rig.tell(x.SessionClosed(3))
    rig.carry_out()
    assert [said for said in rig.said if said.session == 3] == []


def test_an_epoch_that_is_refused_at_once_takes_none_back_that_is_still_on_its_way() -> None:
    rig = Rig()
    rig.attach(1)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2), 0))
    rig.is_full = True
    rig.tell(x.SourceAttachRequested(3, "local", "s", "alpha", incarnation(3), 0))
    rig.refuse_at_once()
    rig.is_full = False
    rig.tell(x.SourceAttachRequested(4, "local", "s", "alpha", incarnation(1), 1))
    rig.tell(x.SourceAttachRequested(5, "local", "s", "alpha", incarnation(4), 0))
    rig.carry_out()
    assert [said.code for said in rig.said_to(3, x.Refuse)] == ["disk-full"]
    assert [[grant.epoch for grant in rig.said_to(session, x.GrantSource)] for session in (2, 4, 5)] == [[2], [], [3]]
    assert [[fence.epoch for fence in rig.said_to(session, x.Fence)] for session in (1, 2)] == [[2], [3]]
    assert isinstance(rig.said_to(4, x.Fence)[0], x.Fence)
