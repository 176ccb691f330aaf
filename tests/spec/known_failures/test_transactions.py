"""Commits that are late, torn, doubted or asked for by the dead: all of a transaction is there once, or nothing."""

from __future__ import annotations

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, open_stage, staged, write
from veredus.journal.exchange import WriteGroup
from veredus.streams import exchange as x

DAY_NS = 86_400 * 1_000_000_000


def visible(rig: Rig, stream: str = "s", session: int = 900) -> list[str]:
    """Of whom the rows are that a new reader is given."""
    rig.subscribe(session, stream=stream)
    return [identity.who for _, identity in rig.rows(session)]


def test_a_commit_that_arrives_late_decides_about_no_later_transaction() -> None:
    """A commit was delayed, sent again, and arrived when its producer was in its next transaction: that one was
    committed half-way, though it was to be aborted; and the other way round, an abort cut a later one to pieces.

    Seen in: the Kafka transaction protocol, in Kafka and Bufstream: Jepsen, "Bufstream 0.1.0", 2024,
    https://jepsen.io/analyses/bufstream-0.1.0; KAFKA-17754, 2024,
    https://go.mail-archive.com/dev@kafka.apache.org/msg144093.html.
    Here: the copies of a commit, and of a drop, arrive again while the next transaction of the same run is open.
    """
    rig = Rig()
    run = open_run(rig)
    (first,) = staged(rig, run.epoch, 3)
    commit(rig, run.epoch, 1, first)
    second, third = staged(rig, run.epoch, 2, 4, session=70)
    late = commit(rig, run.epoch, 1, first, request=2)[-1]
    assert isinstance(late, x.ConfirmCommitted)
    assert late.is_duplicate
    assert visible(rig) == [f"stage-{first.stage}"] * 3
    drop = x.StagesDropRequested(RUN, 3, "local", "sink", run.epoch, (second.stage,))
    rig.do(drop)
    commit(rig, run.epoch, 2, third, request=4)
    (fourth,) = staged(rig, run.epoch, 1, session=80)
    rig.do(drop)
    commit(rig, run.epoch, 1, first, request=5)
    commit(rig, run.epoch, 3, fourth, request=6)
    rig.restart()
    assert visible(rig) == [f"stage-{first.stage}"] * 3 + [f"stage-{third.stage}"] * 4 + [f"stage-{fourth.stage}"]


def test_rows_of_a_transaction_that_was_given_up_are_never_read() -> None:
    """A consumer that reads what is committed was given rows of a transaction that was aborted.

    Seen in: Redpanda, redpanda-data/redpanda#3036, an end of what may be read that was one too far, and again in #7043,
    at the seam between two stores; Jepsen, "Redpanda 21.10.1", 2022, https://jepsen.io/analyses/redpanda-21.10.1.
    Here: a run drops a stage whose rows are durable, another run dies and leaves one open; readers from memory and
    from the journal, before and after restarts and checkpoints, see what was committed alone.
    """
    rig = Rig()
    rig.subscribe(5)
    run = open_run(rig)
    dropped, kept = staged(rig, run.epoch, 3, 2)
    rig.do(x.StagesDropRequested(RUN, 1, "local", "sink", run.epoch, (dropped.stage,)))
    commit(rig, run.epoch, 1, kept, request=2)
    (abandoned,) = staged(rig, run.epoch, 5, session=70)
    later = open_run(rig, who=2, session=51)
    (last,) = staged(rig, later.epoch, 1, session=80)
    rig.do(x.CommitRequested(51, 3, "local", "sink", later.epoch, 2, (last.stage,)))
    expected = [f"stage-{kept.stage}"] * 2 + [f"stage-{last.stage}"]
    assert [identity.who for _, identity in rig.rows(5)] == expected
    for _ in range(2):
        rig.restart()
        assert visible(rig) == expected
        assert abandoned.stage not in rig.floor.tables.stages
        rig.checkpoint()


def test_a_commit_over_three_streams_whose_write_was_torn_is_seen_in_all_of_them_or_in_none() -> None:
    """Of a transaction over several partitions some rows were committed and others lost.

    Seen in: Kafka and Bufstream: Jepsen, "Bufstream 0.1.0", 2024 ("torn transactions"),
    https://jepsen.io/analyses/bufstream-0.1.0.
    Here: the write of a commit is torn at each of its bytes. The next process sees all three streams with it, or none;
    asked again, it does the commit or answers as the first time.
    """
    outcomes = set()
    size = part = 0
    while part <= size:
        rig = Rig()
        run = open_run(rig)
        stages = [open_stage(rig, 60 + index, run.epoch, name) for index, name in enumerate(("a", "b", "c"))]
        for stage in stages:
            write(rig, stage, 1, 4)
        numbers = tuple(stage.stage for stage in stages)
        rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, numbers))
        rig.wake()
        group = next(order for order in rig.pending if isinstance(order, WriteGroup))
        data = b"".join(group.buffers)
        size = len(data)
        rig.disk.carry_out(WriteGroup(group.token, group.segment, group.offset, [data[:part]], True))
        rig.restart()
        seen = tuple(len(visible(rig, name, 900 + index)) for index, name in enumerate(("a", "b", "c")))
        assert seen in ((0, 0, 0), (4, 4, 4))
        outcomes.add(seen)
        open_run(rig, epoch=run.epoch)
        commit(rig, run.epoch, 7, *stages, request=2)
        done = rig.said_to(RUN, x.ConfirmCommitted)[-1]
        assert (done.is_duplicate, done.streams) == (seen != (0, 0, 0), (("a", 1, 4), ("b", 1, 4), ("c", 1, 4)))
        part += 1
    assert len(outcomes) == 2


def test_a_commit_in_doubt_is_asked_for_until_it_is_known_and_done_once() -> None:
    """A commit timed out; nobody could say whether it was done, and whoever tried again did it twice or lost it.

    Seen in: Kafka's producers, whose retries after a time-out of a commit can decide about other transactions:
    KAFKA-17754, 2024, https://go.mail-archive.com/dev@kafka.apache.org/msg144093.html.
    Here: a node is killed at each step of five commits: asked, journaled, answered. The run asks again each time.
    """
    rig = Rig()
    run = open_run(rig)
    for commit_id in range(5):
        for step in ("asked", "journaled", "answered"):
            known = open_run(rig, epoch=run.epoch).commit_id
            stages = staged(rig, run.epoch, 2) if known < commit_id else []
            numbers = tuple(stage.stage for stage in stages)
            rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, commit_id, numbers))
            if step != "asked":
                rig.carry_out()
            rig.restart()
        assert open_run(rig, epoch=run.epoch).commit_id == commit_id
    assert len(visible(rig)) == 10


def test_rows_of_a_producer_from_before_join_no_transaction_of_its_successor() -> None:
    """A message of an aborted transaction was stuck on its way, arrived when the next one had begun, and became a part
    of it.

    Seen in: Kafka before KIP-890, "Transactions Server-Side Defense", 2022, KAFKA-14402,
    https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense.
    Here: rows of an older run, of a stage that was committed, and of a stage that was dropped arrive while a newer run
    has stages open. Its commit shows its own rows alone, also after a restart.
    """
    rig = Rig()
    old = open_run(rig)
    stuck, done = staged(rig, old.epoch, 2, 1)
    commit(rig, old.epoch, 1, done)
    write(rig, stuck, 3, 2, is_carried_out=False)
    rig.do(x.RunOpenRequested(51, "local", "sink", incarnation(2)))
    (new,) = rig.said_to(51, x.GrantRun)
    (own,) = staged(rig, new.epoch, 3, session=80)
    write(rig, stuck, 5, 2)
    write(rig, done, 2, 2)
    rig.do(x.CommitRequested(51, 3, "local", "sink", new.epoch, 2, (own.stage,)))
    expected = [f"stage-{done.stage}"] + [f"stage-{own.stage}"] * 3
    assert visible(rig) == expected
    rig.restart()
    assert visible(rig) == expected


def test_a_transaction_that_never_ends_holds_up_no_reader() -> None:
    """A transaction stayed open for good, and no reader of what is committed got beyond its first row any more.

    Seen in: Kafka's last stable offset: KAFKA-9144 and KIP-664, "Provide tooling to detect and abort hanging
    transactions",
    https://cwiki.apache.org/confluence/display/KAFKA/KIP-664%3A+Provide+tooling+to+detect+and+abort+hanging+transactions;
    redpanda-data/redpanda#8566.
    Here: a stage is open for a month, over publications, commits of others, a checkpoint and a restart. Readers go to
    the head, and the stage can still be committed.
    """
    rig = Rig()
    grant = rig.attach(1)
    run = open_run(rig)
    (unending,) = staged(rig, run.epoch, 2)
    rig.subscribe(5)
    for number in range(1, 31):
        rig.publish(grant, number)
        rig.time_ns += DAY_NS
    assert rig.pushed(5) == list(range(1, 31))
    rig.checkpoint()
    rig.restart()
    assert visible(rig) == ["alpha"] * 30
    open_run(rig, epoch=run.epoch)
    commit(rig, run.epoch, 1, unending)
    assert visible(rig, session=901) == ["alpha"] * 30 + [f"stage-{unending.stage}"] * 2
