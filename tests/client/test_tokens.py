"""A place in the input is stored whether or not anything was published since the last one."""

import asyncio
import threading
from contextlib import suppress

import pytest

import veredus
from tests.client.cutter import Cutter
from veredus.client.embedded import Embedded
from veredus.client.tokens import Tokens
from veredus.protocols.zeps.messages import StoreToken

LINES = [b"line %d" % index for index in range(100)]


def resumed(node: Embedded, stream: str) -> tuple[bytes, int, int]:
    """What the source is told when it attaches: its token, the token's number, and its last number."""
    with node.publisher(stream, source="a", resume="token") as publisher:
        return publisher.resume_token, publisher.resume_number, publisher.last_number


def test_a_program_that_reads_on_from_its_token_ends_well_however_often_it_is_run(node: Embedded, stream: str) -> None:
    for _ in range(3):
        with node.publisher(stream, source="a", resume="token") as reading:
            for line in LINES[int(reading.resume_token or b"0") :]:
                reading.publish("line", line)
            reading.flush(resume_token=b"100")
    assert resumed(node, stream) == (b"100", 100, 100)
    with node.subscribe(stream, until=101) as subscription:
        assert [publication.body for publication in subscription] == LINES


@pytest.mark.filterwarnings("ignore:source .* behind its last resume token")
def test_a_program_that_ended_before_its_first_token_publishes_its_input_again_and_nothing_twice(
    node: Embedded, stream: str
) -> None:
    for count in (2, 3):
        with node.publisher(stream, source="file", resume="token") as publisher:
            assert (publisher.resume_token, publisher.resume_number, publisher.number) == (b"", 0, 0)
            for index in range(count):
                publisher.publish("line", b"%d" % index)
            publisher.flush()
    with node.subscribe(stream, until=node.streams.show(stream)["head"] + 1) as subscription:
        assert [publication.body for publication in subscription] == [b"0", b"1", b"2"]


def publish_a_day(node: Embedded, stream: str, day: str, *, token: bytes = b"") -> None:
    with node.publisher(stream, source="etl", resume="token") as publisher:
        for index in range(3):
            publisher.publish("k", f"{day} {index}")
        if token:
            publisher.flush(resume_token=token)
            publisher.publish("k", f"{day} more")


def test_who_closes_behind_the_last_token_is_warned_that_the_next_life_begins_there(
    node: Embedded, stream: str
) -> None:
    for day in ("monday", "tuesday"):
        with pytest.warns(RuntimeWarning, match=r"'etl' was closed 3 publications behind its last resume token \(none"):
            publish_a_day(node, stream, day)
    with pytest.warns(RuntimeWarning, match=r"closed 1 publication behind .* \(at number 3\).*flush") as warned:
        publish_a_day(node, stream, "wednesday", token=b"3")
    assert warned[0].filename == __file__, "it names the line of the program"


@pytest.mark.asyncio
async def test_with_asyncio_who_closes_behind_the_last_token_is_warned_as_well(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        publisher = await far.publisher(stream, source="a", resume="token")
        await publisher.publish("k", b"x")
        with pytest.warns(RuntimeWarning, match="closed 1 publication behind its last resume token") as warned:
            await publisher.close()
        assert warned[0].filename == __file__
        await publisher.close()
        with pytest.warns(RuntimeWarning, match="closed 2 publications behind its last resume token"):
            async with far.publisher(stream, source="a", resume="token") as publisher:
                await publisher.publish_many(["k"] * 2, [b"x"] * 2)


def test_a_publisher_that_an_error_has_ended_is_not_warned_of_its_token(node: Embedded, stream: str) -> None:
    with suppress(LookupError), node.publisher(stream, source="a", resume="token") as publisher:
        publisher.publish("k", b"x")
        raise LookupError("of the program")
    older = node.publisher(stream, source="a", resume="token")
    older.wait(older.publish("k", b"x"))
    with node.publisher(stream, source="a", resume="token"):
        with pytest.raises(veredus.Fenced):
            older.flush(resume_token=b"1")
        with suppress(veredus.Fenced):
            older.close()


def test_a_reader_that_filters_stores_its_place_also_where_nothing_matches(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="lines") as publisher:
        publisher.publish_many(["line"] * len(LINES), LINES)
    errors = f"{stream}-errors"
    for until, wanted in ((51, b"never"), (81, b"line 7"), (101, b"never")):
        with node.publisher(errors, source="a", resume="token") as out:
            begin = int(out.resume_token or b"1")
            with node.subscribe(stream, start=veredus.at(begin), until=until) as subscription:
                for publication in subscription:
                    if publication.body.startswith(wanted):
                        out.publish("e", publication.body)
                    if publication.sequence % 10 == 0:
                        out.flush(resume_token=b"%d" % (publication.sequence + 1))
    assert resumed(node, errors) == (b"101", 10, 10)


def test_the_token_that_the_node_has_is_not_written_again() -> None:
    with veredus.embedded() as node, node.publisher("s", source="a", resume="token") as publisher:
        publisher.publish("k", b"1")
        publisher.flush(resume_token=b"one")
        size = journal_size(node)
        for _ in range(3):
            receipt = publisher.flush(resume_token=b"one")
            assert receipt is not None
            assert receipt.number == 1
        assert journal_size(node) == size
        publisher.flush(resume_token=b"two")
        assert journal_size(node) > size


def journal_size(node: Embedded) -> int:
    """How many bytes of the node's segments are written."""
    octets = b"".join(path.read_bytes() for path in sorted(node.served.directory.rglob("*")) if path.is_file())
    return len(octets) - octets.count(0)


def test_a_flush_that_does_not_wait_leaves_the_token_to_the_next_flush_or_close(node: Embedded, stream: str) -> None:
    publisher = node.publisher(stream, source="a", resume="token")
    assert publisher.flush(resume_token=b"1", wait=False) is None
    publisher.close()
    assert resumed(node, stream) == (b"1", 0, 0)
    with node.publisher(stream, source="a", resume="token") as publisher:
        for place in range(2, 1000):
            publisher.flush(resume_token=b"%d" % place, wait=False)
        publisher.flush()
        assert resumed(node, stream) == (b"999", 0, 0), "the flush has waited for all of them"


@pytest.mark.asyncio
async def test_with_asyncio_a_token_is_stored_by_itself_as_well(node: Embedded, stream: str) -> None:
    async with (
        veredus.connect_async(node.served.address) as far,
        far.publisher(stream, source="a", resume="token") as publisher,
    ):
        assert await publisher.flush(resume_token=b"1") is None
        await publisher.publish("k", b"x")
        receipt = await publisher.flush(resume_token=b"2")
        assert receipt is not None
        assert receipt.number == 1
        await publisher.flush(resume_token=b"2")
        assert await publisher.flush(resume_token=b"3", wait=False) is None
    assert await asyncio.to_thread(resumed, node, stream) == (b"3", 1, 1)


@pytest.mark.filterwarnings("ignore:source .* behind its last resume token")
def test_a_token_that_only_duplicates_carry_is_stored_all_the_same(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a", resume="token") as publisher:
        publisher.publish_many(["k"] * 100, LINES)
        publisher.flush()
        publisher.flush(resume_token=b"100")
    assert resumed(node, stream) == (b"100", 100, 100)
    again = f"{stream}-again"
    with node.publisher(again, source="a", resume="token") as publisher:
        publisher.flush(resume_token=b"0")
        publisher.publish_many(["k"] * 60, LINES[:60])
    with node.publisher(again, source="a", resume="token") as publisher:
        publisher.publish_many(["k"] * 40, LINES[:40])
        receipt = publisher.flush(resume_token=b"40")
        assert receipt is not None
        assert receipt.is_duplicate
    assert resumed(node, again) == (b"40", 40, 60)


def test_an_older_incarnation_stores_no_token(node: Embedded, stream: str) -> None:
    older = node.publisher(stream, source="a", resume="token")
    with node.publisher(stream, source="a", resume="token") as newer:
        newer.flush(resume_token=b"newer")
        with pytest.raises(veredus.Fenced):
            older.flush(resume_token=b"older")
    with pytest.raises(veredus.Fenced):
        older.flush(resume_token=b"older")
    assert resumed(node, stream) == (b"newer", 0, 0)


@pytest.mark.parametrize("down_max", range(700, 1150, 25))
def test_a_token_whose_answer_is_cut_off_is_asked_for_again(node: Embedded, stream: str, down_max: int) -> None:
    limits = [(1 << 60, down_max + 13 * cut) for cut in range(3)]
    with (
        Cutter(node.served.address, limits) as cutter,
        veredus.connect(cutter.address) as far,
        far.publisher(stream, source="a", resume="token") as publisher,
    ):
        for place in range(30):
            publisher.flush(resume_token=b"%d" % place, timeout_s=30)
        assert cutter.connection_count > 1
    assert resumed(node, stream) == (b"29", 0, 0)


def test_a_token_waits_for_a_node_as_long_as_it_is_told_and_is_stored_when_there_is_one() -> None:
    with veredus.embedded() as node:
        served = node.served
        with node.publisher("s", source="a", resume="token") as publisher:
            served.stop()
            with pytest.raises(veredus.Unavailable, match="in-doubt") as caught:
                publisher.flush(resume_token=b"1", timeout_s=0.05)
            assert "resume token" in str(caught.value)
            served.start()
            publisher.flush(timeout_s=20)
        served.stop()
        served.start()
        assert resumed(node, "s") == (b"1", 0, 0)


def test_a_closed_publisher_stores_no_token(node: Embedded, stream: str) -> None:
    publisher = node.publisher(stream, source="a", resume="token")
    publisher.close()
    with pytest.raises(veredus.Misuse, match="closed"):
        publisher.flush(resume_token=b"late", timeout_s=10)
    assert resumed(node, stream) == (b"", 0, 0)


def test_threads_that_share_a_publisher_each_wait_for_their_token(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a", resume="token") as publisher:

        def flush(who: int) -> None:
            for place in range(50):
                publisher.flush(resume_token=b"%d-%d" % (who, place), timeout_s=30)

        threads = [threading.Thread(target=flush, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert resumed(node, stream)[0].endswith(b"-49")


def test_a_token_that_is_too_large_is_refused_at_once(node: Embedded, stream: str) -> None:
    with (
        node.publisher(stream, source="a", resume="token") as publisher,
        pytest.raises(veredus.Misuse, match="too-large"),
    ):
        publisher.flush(resume_token=b"x" * 5000)


def test_a_token_that_the_node_cannot_store_for_now_is_asked_for_again() -> None:
    tokens = Tokens()
    tokens.learn(3, b"three")
    told: list[str] = []
    tokens.want(5, b"five")
    tokens.add_waiter(lambda: told.append("five"))
    assert tokens.to_ask(4, is_attached=True) is None, "what it speaks of is not taken yet"
    assert tokens.to_ask(5, is_attached=True) == StoreToken(1, 5, b"five")
    assert tokens.to_ask(5, is_attached=True) is None, "it is on its way"
    tokens.ask_again()
    assert tokens.to_ask(5, is_attached=True) == StoreToken(1, 5, b"five")
    tokens.want(5, b"later")
    tokens.add_waiter(lambda: told.append("later"))
    assert tokens.to_ask(5, is_attached=True) is None, "one at a time"
    tokens.take_answer(1)
    assert (told, tokens.is_wanted) == (["five"], True)
    assert tokens.to_ask(5, is_attached=True) == StoreToken(2, 5, b"later")
    tokens.learn(5, b"later")
    assert tokens.to_ask(5, is_attached=True) is None, "the grant of the next link has said that it is stored"
    assert (told, tokens.is_wanted) == (["five", "later"], False)
