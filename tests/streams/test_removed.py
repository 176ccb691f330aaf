"""Which streams were removed is remembered, as far as there is room; which were given to another node is not."""

from typing import Any

import msgspec
import pytest

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x
from veredus.streams import removed
from veredus.streams.facts import StreamDeleted, decode_fact
from veredus.streams.lives import Lives
from veredus.streams.snapshot import Snapshot, decode_snapshot


def create(rig: Rig, name: str) -> bytes:
    """Make a stream; its incarnation."""
    rig.do(x.AdminRequested(9, 1, "local", "stream.create", {"name": name}))
    return rig.floor.tables.streams[name].incarnation


def delete(rig: Rig, name: str, **more: object) -> str:
    """Ask to delete a stream: the code of the refusal, or ""."""
    said = rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": name, **more}))[-1]
    return said.code if isinstance(said, x.Refuse) else ""


def again(rig: Rig, after: str) -> None:
    """The node goes on, or was killed, before or after a checkpoint."""
    if after == "checkpoint":
        rig.checkpoint()
    if after:
        rig.restart()


def known(rig: Rig, name: str) -> tuple[bytes, ...]:
    return rig.floor.tables.removed.of(name)


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_the_streams_of_a_name_that_were_removed_are_known_also_after_a_restart(after: str) -> None:
    rig = Rig()
    made: list[bytes] = []
    for _ in range(2):
        made.append(create(rig, "s"))
        delete(rig, "s")
        again(rig, after)
    create(rig, "s")
    assert known(rig, "s") == tuple(made)
    assert rig.subscribe(1).removed == tuple(made), "whoever subscribes is told"
    assert known(rig, "other") == ()


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_every_life_of_a_stream_that_was_removed_is_known(after: str) -> None:
    rig = Rig()
    create(rig, "s")
    stream = rig.floor.tables.streams["s"]
    rig.publish(rig.attach(1), 1, 5)
    stream.raise_term(2, 3)
    stream.is_term_durable = False
    rig.subscribe(2)
    lives = tuple(life for life, _ in Lives.of(stream.incarnation, [(1, 1), (2, 3)]).known)
    delete(rig, "s")
    again(rig, after)
    assert known(rig, "s") == lives


def mark(rig: Rig) -> None:
    """The stream `s` is marked as one that may be another node's by now; nothing is carried out."""
    named: dict[str, Any] = {"subscriber": "127.0.0.1:9", "name": removed.GIVEN, "incarnation": incarnation(1)}
    rig.tell(x.SubscribeRequested(30, "local", "s", **named))


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
@pytest.mark.parametrize("how", ["given", "marked", "marked at that moment"])
def test_a_stream_that_may_be_another_nodes_by_now_is_not_over_when_it_is_deleted(how: str, after: str) -> None:
    rig = Rig()
    create(rig, "s")
    if how != "given":
        mark(rig)
    if how == "marked":
        rig.carry_out()
    assert delete(rig, "s", **({"given": True} if how == "given" else {})) == ""
    again(rig, after)
    assert "s" not in rig.floor.tables.streams
    assert known(rig, "s") == ()


def test_whether_a_stream_was_given_is_true_or_false() -> None:
    rig = Rig()
    create(rig, "s")
    assert delete(rig, "s", given="yes") == "bad-request"
    assert delete(rig, "s", given=False) == ""
    assert len(known(rig, "s")) == 1


def test_what_is_remembered_has_a_bound_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "LIVES_MAX", 4)
    monkeypatch.setattr(removed, "OF_NAME_MAX", 3)
    rig = Rig()
    made: dict[str, list[bytes]] = {}
    for name in "ababcbb":
        made.setdefault(name, []).append(create(rig, name))
        delete(rig, name)
    rig.checkpoint()
    assert {name: list(known(rig, name)) for name in "abc"} == {"a": [], "b": made["b"][-3:], "c": made["c"]}
    rows = rig.floor.tables.removed.rows()
    assert [name for name, _, _ in rows] == ["c", "b"]
    rig.restart()
    assert rig.floor.tables.removed.rows() == rows
    made["d"] = [create(rig, "d")]
    delete(rig, "d")
    assert [name for name, _, _ in rig.floor.tables.removed.rows()] == ["b", "d"]


def create_as(rig: Rig, who: str, name: str) -> bytes:
    rig.do(x.AdminRequested(9, 1, who, "stream.create", {"name": name}))
    return rig.floor.tables.streams[name].incarnation


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_whoever_makes_and_removes_many_streams_pushes_out_nothing_of_others(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed, "LIVES_MAX", 6)
    rig = Rig()
    made = [create_as(rig, "alice", name) for name in ("a", "b")]
    for name in ("a", "b"):
        delete(rig, name)
    for number in range(20):
        create_as(rig, "mallory", f"m{number}")
        delete(rig, f"m{number}")
        if number in (3, 10):
            again(rig, after)
    assert [*known(rig, "a"), *known(rig, "b")] == made
    assert [name for name, _, whose in rig.floor.tables.removed.rows() if whose == "mallory"] == [
        f"m{number}" for number in range(16, 20)
    ]


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_whoever_makes_and_removes_a_stream_of_anothers_name_pushes_out_nothing_of_the_other(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed, "OF_NAME_MAX", 3)
    rig = Rig()
    made = create_as(rig, "alice", "s")
    delete(rig, "s")
    others = []
    for _ in range(5):
        others.append(create_as(rig, "mallory", "s"))
        delete(rig, "s")
        again(rig, after)
    assert sorted(known(rig, "s")) == sorted([made, *others[-3:]])
    create_as(rig, "carol", "s")
    assert sorted(rig.subscribe(1).removed) == sorted(known(rig, "s"))


def test_whoever_has_most_loses_its_oldest_whoever_removes_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "LIVES_MAX", 4)
    rig = Rig()
    for name in ("m1", "m2", "m3"):
        create_as(rig, "mallory", name)
        delete(rig, name)
    for name in ("a", "b"):
        create_as(rig, "alice", name)
        delete(rig, name)
    assert sorted(name for name, _, _ in rig.floor.tables.removed.rows()) == ["a", "b", "m2", "m3"]


def test_nothing_is_kept_of_a_creator_of_whom_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "LIVES_MAX", 1)
    rig = Rig()
    for who in ("alice", "bob", "carol"):
        create_as(rig, who, who)
        delete(rig, who)
    kept = rig.floor.tables.removed
    assert [whose for _, _, whose in kept.rows()] == list(kept._by_creator) == list(kept._by_name)
    assert len(kept.rows()) == 1


def test_what_was_merged_into_a_stream_is_known_once_and_goes_before_the_streams_own_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, given = Rig(), bytes(16)
    made: list[bytes] = []
    for _ in range(2):
        made.append(create(rig, "s"))
        rig.floor.tables.streams["s"].merged = (given,)
        delete(rig, "s")
    assert known(rig, "s") == (made[0], given, made[1])
    monkeypatch.setattr(removed, "OF_NAME_MAX", 1)
    made.append(create(rig, "s"))
    rig.floor.tables.streams["s"].merged = (b"\xff" * 16,)
    delete(rig, "s")
    assert known(rig, "s") == (made[-1],)


def test_what_an_earlier_version_remembered_is_nobodys_in_particular() -> None:
    rig = Rig()
    made = create_as(rig, "alice", "s")
    delete(rig, "s")
    assert rig.floor.tables.removed.rows() == [("s", (made,), "alice")]
    former = msgspec.msgpack.decode(b"".join(rig.floor.snapshot().buffers()))
    del former["removed_by"]
    other = Rig()
    other.floor.load(msgspec.msgpack.encode(former))
    assert other.floor.tables.removed.rows() == [("s", (made,), "")]


def test_a_deletion_that_an_earlier_version_wrote_down_says_nothing_of_what_is_over() -> None:
    former = msgspec.msgpack.encode({"type": "delete", "stream_id": 7})
    assert decode_fact(former) == StreamDeleted(7, is_removed=False)


def test_a_snapshot_of_an_earlier_version_remembers_no_stream_that_was_removed() -> None:
    rows: dict[str, object] = {
        "version": 1,
        "next_stream_id": 1,
        "next_stage": 1,
        "streams": [],
        "runs": [],
        "stages": [],
    }
    taken = decode_snapshot(msgspec.msgpack.encode(rows))
    assert isinstance(taken, Snapshot)
    assert taken.removed == []
