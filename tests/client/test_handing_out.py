"""One order of handing out, whatever call takes; and what was not handed out cannot be settled."""

import asyncio
from typing import Any, Literal

import pytest

import veredus
from tests.client.test_subscribing import fill
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Misuse

MODES: tuple[Literal["in-order", "individual"], ...] = ("in-order", "individual")


@pytest.mark.parametrize("options", [{}, {"attempts_max": 5, "parked_to": "letters"}], ids=["plain", "counted"])
def test_a_batch_behind_an_iteration_is_the_rest_of_the_batch_that_it_began(
    node: Embedded, stream: str, options: dict[str, Any]
) -> None:
    node.streams.create("letters")
    fill(node, stream, 10)
    with node.subscribe(stream, subscriber="r", **options) as one:
        assert next(iter(one)).sequence == 1
        assert one.position == 2
        fill(node, stream, 1, source="b")
        batch = one.next_batch(timeout_s=10)
        assert batch is not None
        assert [p.sequence for p in batch] == list(range(2, 11))
        assert (batch.first_sequence, batch.last_sequence, len(batch), batch.to_arrow().num_rows) == (2, 10, 9, 9)
        assert one.position == 11
        one.settle(batch)
        assert next(iter(one)).sequence == 11


def test_an_iteration_goes_on_behind_what_was_taken_in_batches_meanwhile(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    fill(node, stream, 10, source="b")
    with node.subscribe(stream, until=21) as one:
        rows = iter(one)
        got = [next(rows).sequence, next(rows).sequence]
        rest = one.next_batch(timeout_s=10)
        assert rest is not None
        got += [p.sequence for p in rest]
        got += [p.sequence for p in rows]
        assert got == list(range(1, 21))
        assert (one.is_ended, one.position) == (True, 21)


def test_iterations_by_turns_share_one_order(node: Embedded, stream: str) -> None:
    fill(node, stream, 1500)
    with node.subscribe(stream, until=1501) as one:
        first, second = iter(one), iter(one)
        got = []
        for _ in range(750):
            got += [next(first).sequence, next(second).sequence]
            assert one.position == got[-1] + 1
        assert got == list(range(1, 1501))


def test_the_position_of_a_filtered_subscription_is_behind_what_it_handed_out(node: Embedded, stream: str) -> None:
    fill(node, stream, 30)
    with node.subscribe(stream, keys="k.2", until=31) as one:
        rows = iter(one)
        assert [next(rows).sequence, next(rows).sequence, one.position] == [3, 6, 7]
        rest = one.next_batch(timeout_s=10)
        assert rest is not None
        assert [p.sequence for p in rest] == list(range(9, 31, 3))


async def _by_turns(address: str, stream: str) -> list[int]:
    async with veredus.connect_async(address) as far, far.subscribe(stream, until=11) as one:
        got = []
        async for publication in one:
            got.append(publication.sequence)
            if len(got) == 2:
                break
        async for publication in one:
            got.append(publication.sequence)
            break
        assert one.position == 4
        batch = await one.next_batch()
        assert batch is not None
        return got + [p.sequence for p in batch]


def test_with_asyncio_a_left_iteration_loses_nothing_of_its_batch(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    assert asyncio.run(_by_turns(node.served.address, stream)) == list(range(1, 11))


@pytest.mark.parametrize("mode", MODES)
def test_what_was_pushed_and_not_handed_out_cannot_be_settled(
    node: Embedded, stream: str, mode: Literal["in-order", "individual"]
) -> None:
    fill(node, stream, 100)
    with node.subscribe(stream, subscriber="r", mode=mode) as one:
        rows = iter(one)
        last = [next(rows) for _ in range(3)][-1]
        for what in (90, 4, last.batch):
            with pytest.raises(Misuse, match="handed out is 3") as caught:
                one.settle(what)
            assert caught.value.code == "not-pushed"
        one.settle(3)
        one.wait_settled(3, timeout_s=10)
    with node.subscribe(stream, subscriber="r", mode=mode) as again:
        assert next(iter(again)).sequence == (4 if mode == "in-order" else 1)


def test_a_publication_settles_itself(node: Embedded, stream: str) -> None:
    fill(node, stream, 3)
    with node.subscribe(stream, subscriber="r", mode="individual") as one:
        rows = iter(one)
        next(rows)
        publication = next(rows)
        publication.settle()
        one.wait_settled(publication, timeout_s=10)
    with node.subscribe(stream, subscriber="r", mode="individual", until=4) as again:
        assert [p.sequence for p in again] == [1, 3]


async def _settle_itself(address: str, stream: str) -> int:
    async with veredus.connect_async(address) as far:
        async with far.subscribe(stream, subscriber="r") as one:
            async for publication in one:
                publication.settle()
                await one.wait_settled(publication, timeout_s=10)
                break
        async with far.subscribe(stream, subscriber="r") as one:
            return one.position


def test_a_publication_settles_itself_with_asyncio(node: Embedded, stream: str) -> None:
    fill(node, stream, 3)
    assert asyncio.run(_settle_itself(node.served.address, stream)) == 2


def test_what_is_handed_out_again_leaves_the_position_where_it_is(node: Embedded, stream: str) -> None:
    fill(node, stream, 3)
    with node.subscribe(stream, subscriber="r", mode="individual") as one:
        rows = iter(one)
        got = [next(rows) for _ in range(3)]
        got[0].retry()
        assert next(rows).sequence == 1
        assert one.position == 4
