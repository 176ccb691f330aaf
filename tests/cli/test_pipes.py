"""What goes into a stream by one pipe comes out by another, once."""

import io
import json
import math
import os
import shlex
import signal
import sys
import time
import tty
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.cli.conftest import Veredus
from tests.processes import WAIT_S, Child, beside, free_port
from veredus.cli.exits import Exit
from veredus.cli.terminal import write_rows
from veredus.cli.topics import _write as write_body
from veredus.client.embedded import Embedded

COMMAND = [sys.executable, "-c", "from veredus.cli import main; main()"]


def started(*arguments: str) -> Child:
    """A command in a process of its own, with pipes to all its ends."""
    return Child([*COMMAND, *arguments], stdin=-1, stdout=-1, stderr=-1)


def wait_for_head(node: Embedded, stream: str, head: int) -> None:
    deadline = time.monotonic() + 30
    while node.streams.show(stream)["head"] < head:
        assert time.monotonic() < deadline, f"{stream} did not come to {head}"


def written(directory: Path, *lines: str, name: str = "input") -> Path:
    file = directory / name
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_lines_go_in_and_come_out_in_order(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, *(f"line {index}" for index in range(10_000)))
    assert run_veredus("pub", "trades", "--file", file).code == Exit.OK
    read = run_veredus("sub", "trades", "--no-follow")
    assert (read.code, read.out) == (Exit.OK, file.read_text())


def test_standard_input_is_read_when_no_file_is_named(run_veredus: Veredus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert run_veredus("pub", "trades").code == Exit.OK
    assert run_veredus("sub", "trades", "--no-follow").lines == ["one", "two"]


def test_keys_attributes_and_times_survive_a_json_pipe(run_veredus: Veredus, tmp_path: Path) -> None:
    record = {
        "key": "stock.SUN",
        "body": "31.5",
        "attributes": {
            "quote": 31.5,
            "lots": 3,
            "raw": {"$bytes": "AP8="},
            "day": {"$timestamp": "2013-07-01T00:00:00.000000Z"},
        },
        "event_time": "2013-07-01T05:00:00.000000Z",
    }
    run_veredus("pub", "trades", "--format", "json", "--file", written(tmp_path, json.dumps(record)))
    (line,) = run_veredus("sub", "trades", "--no-follow", "--format", "json").lines
    shown = json.loads(line)
    assert {name: shown[name] for name in record} == record
    assert (shown["sequence"], shown["number"], shown["source"]) == (1, 1, "")
    copied = written(tmp_path, line, name="copied")
    assert run_veredus("pub", "copy", "--format", "json", "--file", copied).code == Exit.OK
    again = json.loads(run_veredus("sub", "copy", "--no-follow", "--format", "json").out)
    assert {name: again[name] for name in record} == record


def test_whatever_was_published_comes_back_from_a_json_pipe_as_it_was(
    run_veredus: Veredus, node: Embedded, tmp_path: Path
) -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    listed: list[dict[str, Any]] = [
        {"a": math.nan, "b": math.inf, "c": -math.inf, "d": -0.0, "e": 5e-324, "f": 1e300, "g": 1.0},
        {"a": -(2**63), "b": 2**63 - 1, "c": True, "d": False, "e": None, "f": 0},
        {"a": b"\xff\x00", "b": b"", "c": first, "d": last, "e": "\x00\u2028\U0001f600", "$f": "", "é": "$bytes"},
        {},
    ]
    with node.publisher("trades") as publisher:
        publisher.publish_many(
            [b"\xff", b"", "é".encode(), b"\x00"],
            [b"\xfe\n", b"\r\n", b"\x1b", b""],
            listed,
            [first, last, first, last],
        )
    lines = run_veredus("sub", "trades", "--no-follow", "--format", "json").out
    file = tmp_path / "copied"
    file.write_text(lines)
    assert run_veredus("pub", "copy", "--format", "json", "--file", file).code == Exit.OK

    def held(stream: str) -> list[tuple[object, ...]]:
        with node.subscribe(stream, until=5) as subscription:
            return [(p.key, p.body, repr(dict(sorted(p.attributes.items()))), p.event_time) for p in subscription]

    assert held("copy") == held("trades")


@pytest.mark.parametrize("form", ["lines", "json"])
def test_a_terminal_is_shown_control_characters_and_a_file_gets_them_as_they_are(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, form: str
) -> None:
    body = "\x1b]0;title\x07\tone\r\n\x9btwo é".encode() + (b"\xff" if form == "lines" else b"")
    with node.publisher("trades") as publisher:
        publisher.publish("\x1bkey", body)
    command = ("sub", "trades", "--no-follow", "--format", form)
    command += ("--key-separator", "|") if form == "lines" else ()
    near, far = os.openpty()
    tty.setraw(far)
    with Child([*COMMAND, *command], stdout=far) as child:
        assert child.wait(WAIT_S) == Exit.OK
        shown = os.read(near, 1 << 16)
    os.close(near)
    os.close(far)
    assert not set(shown.decode()) & set(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
    if form == "json":
        assert {"key": "\x1bkey", "body": body.decode()}.items() <= json.loads(shown).items()
        return
    assert shown.decode() == "\\u001bkey|\\u001b]0;title\\u0007\tone\\u000d\n\\u009btwo é\\xff\n"
    file = tmp_path / "output"
    with file.open("wb") as output, Child([*COMMAND, *command], stdout=output) as child:
        assert child.wait(WAIT_S) == Exit.OK
    assert file.read_bytes() == b"\x1bkey|" + body + b"\n"


def test_bodies_with_line_breaks_go_through_a_prefixed_pipe(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\x00\x00\x00\x03a\nb\x00\x00\x00\x00")
    run_veredus("pub", "trades", "--format", "prefixed", "--file", file)
    assert run_veredus("sub", "trades", "--no-follow", "--format", "prefixed").out == "\0\0\0\3a\nb\0\0\0\0"


def test_key_and_condition_are_evaluated_by_the_node(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, "EWR.LAX\tone", "JFK.LAX\ttwo", "EWR.SFO\tthree")
    run_veredus("pub", "flights", "--key-separator", "\\t", "--attribute", "delay=40", "--file", file)
    read = run_veredus("sub", "flights", "--no-follow", "--key", "prefix:EWR.", "--key-separator", "\\t")
    assert read.lines == ["EWR.LAX\tone", "EWR.SFO\tthree"]
    assert run_veredus("sub", "flights", "--no-follow", "--where", "delay < 40").lines == []
    refused = run_veredus("sub", "flights", "--no-follow", "--where", "delay <")
    assert (refused.code, "[bad-predicate]" in refused.err) == (Exit.REFUSED, True)


def test_an_attribute_has_the_type_that_its_text_shows(run_veredus: Veredus, tmp_path: Path) -> None:
    texts = {"whole": "-3", "decimal": "2.5e1", "switch": "true", "text": "Infinity", "quoted": '"7"'}
    given = [part for name, text in texts.items() for part in ("--attribute", f"{name}={text}")]
    run_veredus("pub", "trades", *given, "--file", written(tmp_path, "one"))
    shown = json.loads(run_veredus("sub", "trades", "--no-follow", "--format", "json").out)
    assert shown["attributes"] == {"whole": -3, "decimal": 25.0, "switch": True, "text": "Infinity", "quoted": "7"}


def test_a_command_begins_where_it_is_told(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--source", "desk", "--file", written(tmp_path, *map(str, range(1, 11))))
    assert run_veredus("sub", "trades", "--no-follow", "--from", "9").lines == ["9", "10"]
    assert run_veredus("sub", "trades", "--no-follow", "--from", "tail:3").lines == ["8", "9", "10"]
    assert run_veredus("sub", "trades", "--no-follow", "--from", "head").lines == []
    assert run_veredus("sub", "trades", "--no-follow", "--from", "after:desk").lines == []
    assert run_veredus("sub", "trades", "--from", "2013-07-01T00:00:00Z", "--count", "2").lines == ["1", "2"]
    assert run_veredus("sub", "trades", "--from", "yesterday").code == Exit.USAGE
    assert "time zone" in run_veredus("sub", "trades", "--from", "2013-07-01T00:00:00").err


def test_a_part_of_the_input_is_published_when_that_is_asked_for(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, *map(str, range(1, 11)))
    run_veredus("pub", "trades", "--file", file, "--from", "4", "--count", "3")
    assert run_veredus("sub", "trades", "--no-follow").lines == ["4", "5", "6"]


def test_the_same_file_published_again_under_its_source_adds_nothing(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, *map(str, range(9_000)))
    for _ in range(2):
        assert run_veredus("pub", "trades", "--source", "desk", "--file", file).code == Exit.OK
    assert run_veredus("sub", "trades", "--no-follow").out == file.read_text()
    with file.open("a") as more:
        more.write("new\n")
    run_veredus("pub", "trades", "--source", "desk", "--file", file)
    assert run_veredus("sub", "trades", "--no-follow").out == file.read_text()


def test_another_file_under_the_same_source_is_refused_unless_it_is_meant(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--source", "desk", "--file", written(tmp_path, "one", "two"))
    other = written(tmp_path, "three", "four", "five", name="other")
    refused = run_veredus("pub", "trades", "--source", "desk", "--file", other)
    assert (refused.code, "[other-input]" in refused.err) == (Exit.REFUSED, True)
    assert run_veredus("pub", "trades", "--source", "desk", "--no-resume", "--file", other).code == Exit.OK
    assert run_veredus("sub", "trades", "--no-follow").lines == ["one", "two", "three", "four", "five"]


def test_of_one_record_is_said_that_it_is_one(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, '{"body": "one"}', "{]")
    refused = run_veredus("pub", "trades", "--source", "desk", "--format", "json", "--no-resume", "--file", file)
    assert "1 of 1 publication was acknowledged, up to number 1" in refused.err
    other = run_veredus("pub", "trades", "--source", "desk", "--file", file)
    assert "the source has published 1 record without" in other.err


def test_a_source_that_never_said_from_where_is_not_resumed(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, "one", "two")
    run_veredus("pub", "trades", "--source", "desk", "--no-resume", "--file", file)
    refused = run_veredus("pub", "trades", "--source", "desk", "--file", file)
    assert (refused.code, "[other-input]" in refused.err) == (Exit.REFUSED, True)


def test_what_is_right_before_a_bad_record_is_published(run_veredus: Veredus, tmp_path: Path) -> None:
    file = written(tmp_path, '{"body":"one"}', "{]", '{"body":"three"}')
    ended = run_veredus("pub", "trades", "--format", "json", "--file", file)
    assert ended.code == Exit.USAGE
    assert "the record at byte 15" in ended.err
    assert "continue with --from 2" in ended.err
    assert run_veredus("sub", "trades", "--no-follow").lines == ["one"]


def test_a_subscriber_goes_on_behind_what_it_printed(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, *map(str, range(1, 7))))
    assert run_veredus("sub", "trades", "--subscriber", "risk", "--count", "4").lines == ["1", "2", "3", "4"]
    assert run_veredus("sub", "trades", "--subscriber", "risk", "--count", "2").lines == ["5", "6"]


def test_a_subscriber_that_does_not_follow_has_settled_what_it_printed(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, "one", "two"))
    assert run_veredus("sub", "trades", "--subscriber", "risk", "--no-follow").lines == ["one", "two"]
    assert run_veredus("sub", "trades", "--subscriber", "risk", "--no-follow").lines == []
    run_veredus("pub", "trades", "--file", written(tmp_path, "three"))
    assert run_veredus("sub", "trades", "--subscriber", "risk", "--no-follow").lines == ["three"]


def test_a_gap_is_told_and_has_an_exit_code_of_its_own(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, *map(str, range(1, 11))))
    run_veredus("sub", "trades", "--subscriber", "risk", "--count", "1")
    assert run_veredus("stream", "trim", "trades", "--keep", "2", "--yes").code == Exit.OK
    read = run_veredus("sub", "trades", "--subscriber", "risk", "--count", "2")
    assert (read.code, read.lines) == (Exit.GAP, ["9", "10"])
    assert "gap: sequences 2 to 8 are not available" in read.err
    below = run_veredus("sub", "trades", "--from", "3")
    assert (below.code, "[below-floor]" in below.err) == (Exit.REFUSED, True)


def test_an_interrupted_reader_says_from_where_to_go_on(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, "one", "two"))
    with started("sub", "trades") as reading:
        assert reading.stdout.readline() + reading.stdout.readline() == b"one\ntwo\n"
        reading.send_signal(signal.SIGINT)
        assert (reading.wait(), reading.stdout.read()) == (Exit.INTERRUPTED, b"")
        assert b"continue with the same command and --from 3" in reading.stderr.read()


def test_a_reader_ends_when_its_own_reader_has_gone_though_nothing_more_comes(
    run_veredus: Veredus, node: Embedded, tmp_path: Path
) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, "one", "two"))
    with started("sub", "trades", "--subscriber", "risk") as reading:
        assert reading.stdout.readline() + reading.stdout.readline() == b"one\ntwo\n"
        reading.stdout.close()
        assert (reading.wait(20), reading.stderr.read()) == (Exit.OK, b"")
    assert node.subscriptions.show("trades", "risk")["floor"] == 2


def test_an_interrupted_subscriber_has_settled_what_it_printed(
    run_veredus: Veredus, node: Embedded, tmp_path: Path
) -> None:
    run_veredus("pub", "trades", "--file", written(tmp_path, "one", "two"))
    with started("sub", "trades", "--subscriber", "risk") as reading:
        assert reading.stdout.readline() + reading.stdout.readline() == b"one\ntwo\n"
        reading.send_signal(signal.SIGTERM)
        assert reading.wait() == Exit.INTERRUPTED
    assert node.subscriptions.show("trades", "risk")["floor"] == 2


def test_an_interrupted_publisher_waits_for_receipts_and_says_from_where_to_go_on(
    run_veredus: Veredus, node: Embedded
) -> None:
    node.streams.create("trades")
    with started("pub", "trades") as publishing:
        publishing.stdin.write(b"one\ntwo\nthr")
        publishing.stdin.flush()
        wait_for_head(node, "trades", 2)
        publishing.send_signal(signal.SIGINT)
        assert publishing.wait() == Exit.INTERRUPTED
        assert b"continue with --from 3" in publishing.stderr.read()
    assert run_veredus("sub", "trades", "--no-follow").lines == ["one", "two"]


def test_a_node_that_is_not_there_is_named(run_veredus: Veredus, tmp_path: Path) -> None:
    ended = run_veredus("stream", "ls", "--address", f"unix://{tmp_path}/nowhere", "--timeout", "0.2s")
    assert (ended.code, "[unreachable]" in ended.err) == (Exit.UNAVAILABLE, True)


def test_a_command_tries_a_port_that_refuses_for_five_seconds(run_veredus: Veredus) -> None:
    began = time.monotonic()
    ended = run_veredus("stream", "ls", "--address", f"127.0.0.1:{free_port()}")
    assert (ended.code, "[unreachable]" in ended.err) == (Exit.UNAVAILABLE, True)
    assert "tried for 5 s" in ended.err
    assert 5 <= time.monotonic() - began < 9


def test_a_command_waits_for_a_node_that_comes_up_as_long_as_it_is_told_to(tmp_path: Path) -> None:
    port = free_port()
    with started("pub", "trades", "-a", f"127.0.0.1:{port}", "--timeout", "40s") as publishing:
        assert publishing.stderr is not None
        assert b"still trying" in publishing.stderr.readline()
        # By now it would have given up, were it not told to wait.
        time.sleep(4)
        listen = ("--set", "listen.zeromq=", "--set", "listen.metrics=", "--log", "error")
        with started("serve", "--tcp", f"127.0.0.1:{port}", "--directory", str(tmp_path / "journal"), *listen):
            out, err = publishing.communicate(b"one\n", 40)
    assert (publishing.returncode, out, err) == (Exit.OK, b"", b"")


def test_who_publishes_waits_for_a_stream_that_cannot_be_stored_no_longer_than_its_patience(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    listen = ("--tcp", address, "--set", "listen.zeromq=", "--set", "listen.metrics=")
    serve = [*COMMAND, "serve", "--directory", str(tmp_path / "journal"), "--log", "error", *listen]
    # No segment can be made.
    with (
        Child(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *serve], stderr=-1),
        started("pub", "trades", "-a", address, "--timeout", "30s", "--patience", "1s") as publishing,
    ):
        out, err = publishing.communicate(b"one\n", 25)
    assert (publishing.returncode, out) == (Exit.UNAVAILABLE, b"")
    assert b"no node attached the source in 1 s" in err
    assert b"the node could not store the new stream 'trades'" in err


def feed(into: BinaryIO, data: bytes) -> None:
    try:
        into.write(data)
        into.flush()
    except BrokenPipeError:
        return


@pytest.mark.slow
def test_a_publisher_that_is_killed_and_started_again_loses_and_doubles_nothing(
    node: Embedded, run_veredus: Veredus, tmp_path: Path
) -> None:
    file = written(tmp_path, *(f"line {index:06}" for index in range(90_000)))
    node.streams.create("log")
    for fed_count in (30_000, 60_000):
        with started("pub", "log", "--source", "archive", "--resume") as publishing:
            # It cannot come to an end: the rest of its input is held back.
            fed = file.read_bytes()[: fed_count * len("line 000000\n")]
            with beside(feed, publishing.stdin, fed):
                wait_for_head(node, "log", fed_count - 20_000)
                publishing.kill()
    assert 40_000 <= node.streams.show("log")["head"] <= 60_000
    assert run_veredus("pub", "log", "--source", "archive", "--file", file).code == Exit.OK
    assert run_veredus("sub", "log", "--no-follow").out == file.read_text()


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


def test_what_a_pipe_publishes_again_is_said_and_with_resume_it_does_not(
    run_veredus: Veredus, node: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(stream: str, *options: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(b"one\ntwo\n")))
        ran = run_veredus("pub", stream, "--source", "shell", *options)
        assert ran.code == Exit.OK
        return ran.err

    assert "with --resume in each run, it publishes only the missing ones" in publish("twice")
    publish("twice")
    assert node.streams.show("twice")["head"] == 4
    for _ in range(2):
        assert "--resume" not in publish("once", "--resume")
    assert node.streams.show("once")["head"] == 2


def test_a_line_that_is_being_written_is_published_when_it_is_whole(run_veredus: Veredus, tmp_path: Path) -> None:
    file, whole = tmp_path / "log", b""
    for part, said in ((b"a\nhalf a li", True), (b"ne\nlast", True), (b"", True), (b"\n", False), (b"c\n", False)):
        whole += part
        file.write_bytes(whole)
        ran = run_veredus("pub", "trades", "--source", "desk", "--file", str(file))
        assert (ran.code, "the last record is not complete (" in ran.err) == (Exit.OK, said)
    assert run_veredus("sub", "trades", "--no-follow").lines == ["a", "half a line", "last", "c"]
    for form, part in (("json", b'{"body":"a'), ("json", b'{"body":"a"}'), ("prefixed", b"\0\0\0\4abc")):
        file.write_bytes(part)
        ran = run_veredus("pub", form, "--source", "desk", "--format", form, "--file", str(file))
        assert (ran.code, "the last record is not complete (" in ran.err) == (Exit.OK, True)
    file.write_bytes(b"a\nb")
    run_veredus("pub", "others", "--file", str(file))
    assert run_veredus("sub", "others", "--no-follow").lines == ["a", "b"]


def test_a_line_is_published_without_what_draws_and_what_computes(node: Embedded) -> None:
    heavy = "[name for name in ('numpy', 'pyarrow', 'rich', 'pandas', 'structlog') if name in sys.modules]"
    publish = f"run(veredus, ['pub', 'trades', '-a', {node.served.address!r}])"
    imports = "import sys; from veredus.cli import veredus; from veredus.cli.exits import run"
    with Child(
        [sys.executable, "-c", f"{imports}; assert {publish} == 0; print({heavy})"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"one\n")
        child.stdin.close()
        assert child.stdout.read() == b"[]\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("stream ls >&-", "veredus: standard output: Bad file descriptor"),
        ("sub closed --subscriber risk --no-follow >&-", "veredus: standard output: Bad file descriptor"),
        ("pub closed <&-", "veredus: standard input: Bad file descriptor"),
        ("sub closed --no-follow >/dev/full", "veredus: standard output: No space left on device"),
        ("stream ls >/dev/full", "veredus: standard output: No space left on device"),
    ],
)
def test_a_standard_stream_that_is_closed_or_full_is_an_error_in_one_sentence(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, command: str, said: str
) -> None:
    run_veredus("pub", "closed", "--file", written(tmp_path, "one"))
    with Child(["sh", "-c", f"exec {shlex.join(COMMAND)} {command}"], stdin=-1, stdout=-1, stderr=-1) as failing:
        assert failing.stderr.read().decode().splitlines()[-1] == said
        assert failing.wait(20) == Exit.ERROR
    assert all(one["floor"] == 0 for one in node.subscriptions.list("closed"))
    assert node.streams.show("closed")["head"] == 1


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what it is shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "write",
    [lambda: write_rows([{"name": "a\x1bb\x9b"}], "table"), lambda: write_body(b"a\x1bb\xc2\x9b", "raw")],
    ids=["tables", "topics get"],
)
def test_whatever_writes_what_others_chose_writes_it_harmless_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]
) -> None:
    shown = io.BytesIO()
    terminal = Terminal(shown, encoding="utf-8")
    monkeypatch.setattr("sys.stdout", terminal)
    write()
    terminal.flush()
    assert rb"a\u001bb\u009b" in shown.getvalue()
