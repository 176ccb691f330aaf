"""How far a query is behind follows from the offsets that Spark reports."""

import json

from veredus.spark import lag_of, read_to_of
from veredus.spark.offsets import StreamOffset, stored_of


def offsets(**sequences: int) -> str:
    return json.dumps(stored_of({name: StreamOffset(name, "00", at, 1) for name, at in sequences.items()}))


def test_the_lag_of_each_stream_is_what_lies_between_the_two_offsets() -> None:
    ours = {"endOffset": offsets(trades=11), "latestOffset": offsets(trades=31, quotes=4)}
    assert lag_of({"sources": [ours]}) == {"trades": 20, "quotes": 3}


def test_what_was_read_of_each_stream_ends_before_the_offset_that_comes_next() -> None:
    first, second = ({"endOffset": offsets(trades=at, quotes=1), "latestOffset": None} for at in (11, 9))
    assert read_to_of({"sources": [first]}) == {"trades": 10, "quotes": 0}
    assert read_to_of({"sources": [first, second]}) == {"trades": 8, "quotes": 0}


def test_other_sources_and_what_is_not_said_are_passed_over() -> None:
    rate = {"endOffset": "12", "latestOffset": "17"}
    fresh = {"endOffset": None, "latestOffset": None}
    kafka = {"endOffset": {"topic": {"0": 3}}, "latestOffset": '{"topic": {"0": 9}}'}
    for shown in (lag_of, read_to_of):
        assert shown({"sources": [rate, fresh, kafka]}) == {}
        assert shown(None) == {}


def test_what_was_trimmed_before_it_was_read_is_no_lag() -> None:
    kept = StreamOffset("a", "00", 101, 91)
    for read_to, lag in ((None, 10), (51, 10), (96, 5)):
        end = {} if read_to is None else {"a": StreamOffset("a", "00", read_to, 1)}
        source = {"endOffset": stored_of(end), "latestOffset": stored_of({"a": kept})}
        assert lag_of({"sources": [source]}) == {"a": lag}


def test_of_a_stream_that_was_made_again_all_is_waiting_until_a_batch_has_taken_of_it() -> None:
    read, new = StreamOffset("a", "00", 101, 1), StreamOffset("a", "01", 4, 1)
    source = {"endOffset": stored_of({"a": read}), "latestOffset": stored_of({"a": new})}
    assert lag_of({"sources": [source]}) == {"a": 3}
