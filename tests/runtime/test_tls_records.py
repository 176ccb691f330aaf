"""The records of a stream by TLS are counted as they come, wherever it is cut."""

from __future__ import annotations

import random

import pytest

from veredus.runtime.tls_records import Records


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


@pytest.mark.parametrize("seed", range(20))
def test_every_record_is_counted_once_wherever_the_stream_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice((0, 1, 22, 600, 16_400)) for _ in range(200)]
    left = memoryview(b"".join(map(record, sizes)))
    records, total = Records(), 0
    while left:
        data, count_max = left[: dice.choice((1, 3, 5, 100, 32_768))], dice.randint(1, 20)
        size, count = records.take(data, count_max)
        assert count <= count_max
        assert size == len(data) or count == count_max
        total += count
        left = left[size:]
    assert total == len(sizes)


def test_what_is_taken_ends_with_the_last_record_that_may_be_opened() -> None:
    data = memoryview(record(10) * 7)
    assert Records().take(data, 3) == (45, 3)
    assert Records().take(data, 7) == (len(data), 7)
