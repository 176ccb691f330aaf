"""An option is known, has its default, or is refused by name."""

import os
from pathlib import Path

import pytest

from veredus.kernel.errors import Refused
from veredus.matching import Filter
from veredus.spark import options
from veredus.spark.connections import node_of
from veredus.spark.options import StartAtHead, StartAtSequence, StartAtTime, read_options, write_options


def refusal(**given: str) -> Refused:
    with pytest.raises(Refused) as caught:
        options.check_streaming(read_options({"stream": "trades", **given}))
    return caught.value


def test_a_stream_is_all_that_must_be_said() -> None:
    read = read_options({"stream": "trades"})
    assert read.node.addresses == ("veredus://127.0.0.1:7071",)
    assert read.start == StartAtSequence(0)
    assert read.rows_per_trigger_max >= 500_000
    assert read.fails_on_data_loss
    assert read.filter == Filter()


def test_option_names_are_known_in_any_case_as_spark_lowers_them() -> None:
    read = read_options({"stream": "trades", "maxrowspertrigger": "1_000", "FAILONDATALOSS": "False"})
    assert (read.rows_per_trigger_max, read.fails_on_data_loss) == (1000, False)


def test_what_spark_adds_by_itself_is_let_through() -> None:
    write = write_options({"stream": "trades", "queryname": "nomen", "checkpointlocation": "/data/ck"})
    assert (write.checkpoint, write.query_name) == ("/data/ck", "nomen")


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"startingSequence": "earliest"}, StartAtSequence(0)),
        ({"startingSequence": "latest"}, StartAtHead()),
        ({"startingSequence": "41"}, StartAtSequence(41)),
        ({"startingTimestamp": "1970-01-01T00:00:01Z"}, StartAtTime(1_000_000)),
        ({"startingTimestamp": "1970-01-01T01:00:01+01:00"}, StartAtTime(1_000_000)),
    ],
)
def test_a_start_is_a_sequence_a_time_or_one_of_two_words(given: dict[str, str], start: object) -> None:
    assert read_options({"stream": "trades", **given}).start == start


def test_several_key_patterns_stand_on_lines_of_their_own() -> None:
    read = read_options({"stream": "trades", "keys": "prefix:EWR.\ntokens:JFK.*.UA.>\n", "where": "quote > 30"})
    assert read.filter == Filter(keys=("prefix:EWR.", "tokens:JFK.*.UA.>"), where="quote > 30")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stream": ""}, "one of the options `stream` and `streams` is needed"),
        ({"maxRowPerTrigger": "7"}, "did you mean 'maxRowsPerTrigger'"),
        ({"maxRows": "7"}, "did you mean 'maxRowsPerTrigger'"),
        ({"option.stream": "trades"}, "CREATE TEMPORARY VIEW"),
        ({"colour": "red"}, "the option `colour` is not known here; known options: address"),
        ({"subscribe": "trades"}, "the option `subscribe` is not known here; did you mean 'stream'?"),
        ({"kafka.bootstrap.servers": "a:1"}, "did you mean 'address'?"),
        ({"startingOffsets": "earliest"}, "did you mean 'startingSequence'?"),
        ({"maxRowsPerTrigger": "0"}, "not a whole number from 1"),
        ({"startingSequence": "9" * 5000}, "99..., not a whole number from 1 to 2**63 - 1"),
        ({"startingSequence": "0"}, "is '0', not a whole number from 1 to 2**63 - 1"),
        ({"startingSequence": "-3"}, "not a whole number from 1"),
        ({"startingSequence": "first"}, "not a whole number from 1, 'earliest' or 'latest'"),
        ({"startingSequence": "3", "startingTimestamp": "2024-05-01T00:00:00Z"}, "use one"),
        ({"startingTimestamp": "2024-05-01T00:00:00"}, "not a time with a time zone"),
        ({"failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({"endingSequence": "9"}, "for batch reads"),
        ({"startingSequence": "latest"}, "name a `subscriber`"),
        ({"commitId": "3"}, "is not known here"),
        ({"stream": "", "streams": "a.>.b"}, "the option `streams` has a pattern 'a.>.b'"),
    ],
)
def test_a_bad_option_is_refused_by_its_name(given: dict[str, str], words: str) -> None:
    refused = refusal(**given)
    assert refused.code == "bad-option"
    assert refused.message.startswith(("the option `", "one of the options `", "the options `", "Spark "))
    assert words in refused.message


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_of_authorities_that_cannot_be_used_is_refused_by_its_option(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    options = read_options({"stream": "trades", "cafile": str(path)})
    with pytest.raises(Refused, match=f"the option `caFile` is '{path}'") as caught:
        node_of(options.node)
    assert caught.value.code == "bad-option"


@pytest.mark.parametrize("option", ["caFile", "tokenFile"])
def test_a_pipe_in_the_place_of_a_file_is_refused_by_its_option_and_not_waited_for(tmp_path: Path, option: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    options = read_options({"stream": "trades", option.lower(): str(path)})
    with pytest.raises(Refused, match=f"the option `{option}` is '{path}', .*there is a FIFO in place of") as caught:
        node_of(options.node)
    assert caught.value.code == "bad-option"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_a_token_of_another_user_is_refused_by_its_option(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("veredus_1_2")
    os.chown(path, 12345, -1)
    options = read_options({"stream": "trades", "tokenfile": str(path)})
    with pytest.raises(Refused, match=f"the option `tokenFile` is '{path}', .*it belongs to user 12345") as caught:
        node_of(options.node)
    assert caught.value.code == "bad-option"


def test_a_filter_that_does_not_parse_is_refused_before_anything_is_read() -> None:
    assert refusal(where="quote >").code == "bad-predicate"
    assert refusal(keys="regex:(").code == "bad-pattern"
    assert "write 'tokens:EWR.*'" in refusal(keys="EWR.*").message


def test_a_name_that_is_none_is_refused() -> None:
    assert refusal(subscriber="no spaces").code == "bad-name"


def test_a_commit_id_needs_its_sink_and_a_sink_its_commit_id() -> None:
    for given in ({"commitId": "3"}, {"sink": "nightly"}):
        with pytest.raises(Refused, match="go together"):
            options.check_batch_write(write_options({"stream": "trades", **given}))
    options.check_batch_write(write_options({"stream": "trades", "commitId": "3", "sink": "nightly"}))
    options.check_batch_write(write_options({"stream": "trades"}))


def test_a_streaming_query_takes_no_commit_id() -> None:
    with pytest.raises(Refused, match="the option `commitId` is for batch writes"):
        options.check_stream_write(write_options({"stream": "trades", "sink": "nightly", "commitId": "3"}))
    options.check_stream_write(write_options({"stream": "trades", "sink": "nightly"}))


def test_a_batch_write_knows_of_no_loss_before_it() -> None:
    with pytest.raises(Refused, match="the option `failOnDataLoss` is for streaming queries"):
        options.check_batch_write(write_options({"stream": "trades", "failOnDataLoss": "false"}))
    options.check_batch_write(write_options({"stream": "trades", "failOnDataLoss": "true"}))
    options.check_stream_write(write_options({"stream": "trades", "failOnDataLoss": "false"}))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscriber", "risk"),
        ("maxRowsPerTrigger", "5"),
        ("maxBytesPerTrigger", "5"),
        ("minRowsPerTrigger", "5"),
        ("maxTriggerDelaySeconds", "5"),
    ],
)
def test_a_batch_read_refuses_what_is_for_streaming_queries(option: str, value: str) -> None:
    with pytest.raises(Refused, match=f"the option `{option}` is for streaming queries: a batch read") as caught:
        options.check_whole_batch(read_options({"stream": "trades", option: value}))
    assert caught.value.code == "bad-option"
    options.check_streaming(read_options({"stream": "trades", option: value}))


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ({"startingSequence": "9"}, {"endingSequence": "3"}, "`endingSequence` is 3, before `startingSequence`, 9"),
        (
            {"startingTimestamp": "2024-05-02T00:00:00Z"},
            {"endingTimestamp": "2024-05-01T00:00:00Z"},
            "`endingTimestamp` is before `startingTimestamp`",
        ),
    ],
)
def test_a_batch_read_does_not_end_before_it_begins(start: dict[str, str], end: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        options.check_whole_batch(read_options({"stream": "trades", **start, **end}))
    empty = {name.replace("starting", "ending"): value for name, value in start.items()}
    options.check_whole_batch(read_options({"stream": "trades", **start, **empty}))


def test_a_batch_read_does_not_begin_at_its_end() -> None:
    with pytest.raises(Refused, match="it would read nothing"):
        options.check_whole_batch(read_options({"stream": "trades", "startingSequence": "latest"}))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("quote", "'quote' is no name with a type: write for example quote double"),
        ("quote double, desk", "'desk' is no name with a type: write for example desk double"),
        ("quote double,", "'' is no name with a type"),
        ("quote, desk string", "'quote' is no name with a type"),
        ("quote dubble", "gives quote the type 'dubble', which Spark does not have; did you mean double?"),
        ("quote text", "there are boolean, bigint, double, string, binary, timestamp"),
        ("quote float64", "did you mean float?"),
    ],
)
def test_attributes_without_types_are_refused_before_spark_reads_them(attributes: str, said: str) -> None:
    refused = refusal(attributes=attributes)
    assert (refused.code, refused.details["option"]) == ("bad-option", "attributes")
    assert said in refused.message


@pytest.mark.parametrize(
    "attributes",
    ["", "  ", "quote double", "quote: double, `my desk` string", "a DECIMAL(10, 2), b array<struct<x: int, y: int>>",
     "quote double not null comment 'x'"],
)  # fmt: skip
def test_attributes_with_types_are_spark_s_to_read(attributes: str) -> None:
    assert read_options({"stream": "trades", "attributes": attributes}).attributes == attributes


def test_a_token_that_is_given_and_empty_is_refused() -> None:
    assert "leave the option out" in refusal(token="").message
