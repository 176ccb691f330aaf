"""What is often done wrong is answered with what is wrong, in the words in which it was written, and what to do."""

import errno
import io
import json
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Veredus
from tests.cli.test_pipes import started
from veredus.cli.exits import Exit
from veredus.cli.resumption import RememberingInput
from veredus.client.embedded import Embedded, embedded


def publish(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream) as publisher:
        for index in range(count):
            publisher.publish("a", b"%d" % index)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("Key = 'a'", "write $key for the publication's own"),
        ("body LIKE 'a%'", "cannot read the body"),
        ("$key = 1", "cannot be compared"),
        ("$event_time > '2013-07-01'", "TIMESTAMP"),
    ],
)
def test_a_condition_that_is_hardly_meant_is_warned_of_and_tried(
    run_veredus: Veredus, node: Embedded, where: str, said: str
) -> None:
    publish(node, "trades", 1)
    read = run_veredus("sub", "trades", "--no-follow", "--where", where)
    assert (read.code, read.out, said in read.err) == (Exit.OK, "", True)
    assert run_veredus("sub", "trades", "--no-follow", "--where", "\"key\" = 'a'").err == ""


@pytest.mark.parametrize(
    "command",
    [
        ("stream", "rm", "nope", "--yes"),
        ("stream", "trim", "nope", "--keep", "1", "--yes"),
        ("stream", "alter", "nope", "--retention-age", "7d"),
        ("subscription", "rm", "nope", "risk", "--yes"),
        ("subscription", "redrive", "nope"),
    ],
)
def test_nobody_is_told_to_create_what_they_want_to_remove(run_veredus: Veredus, command: tuple[str, ...]) -> None:
    refused = run_veredus(*command)
    assert (refused.code, "create" in refused.err) == (Exit.REFUSED, False)
    assert "there is no stream 'nope'" in refused.err


def test_of_a_stream_that_exists_otherwise_the_difference_is_shown(run_veredus: Veredus) -> None:
    run_veredus("stream", "create", "trades", "--retention-count", "10")
    refused = run_veredus("stream", "create", "trades", "--retention-count", "10", "--retention-age", "7d")
    assert "retention_age_s is 0, and 604800 was requested;" in refused.err
    assert "retention_count" not in refused.err


def test_a_stream_for_dead_letters_that_does_not_exist_is_to_be_created(run_veredus: Veredus, node: Embedded) -> None:
    node.streams.create("trades")
    durable = ("sub", "trades", "--no-follow", "--subscriber", "risk", "--attempts-max", "3", "--park-to")
    assert "veredus stream create dead" in run_veredus(*durable, "dead").err
    assert "need another stream" in run_veredus(*durable, "trades").err


def test_a_line_without_the_key_separator_is_refused_unless_there_is_a_key_for_it(
    run_veredus: Veredus, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_text("a:1\nb2\nc:3\n")
    refused = run_veredus("pub", "trades", "--key-separator", ":", "--file", file)
    assert (refused.code, "line at byte 4 (line 2)" in refused.err) == (Exit.USAGE, True)
    assert run_veredus("pub", "trades", "--key-separator", ":", "--key", "x", "--file", file).code == Exit.OK
    read = run_veredus("sub", "trades", "--no-follow", "--key-separator", ":")
    assert read.lines == ["a:1", "a:1", "x:b2", "c:3"]


def test_a_key_separator_is_for_lines_alone(run_veredus: Veredus) -> None:
    for verb in ("pub", "sub"):
        refused = run_veredus(verb, "trades", "--format", "json", "--key-separator", ":")
        assert (refused.code, "--format lines" in refused.err) == (Exit.USAGE, True)


def test_who_publishes_nothing_is_not_told_of_0_of_0(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("no json\n")
    refused = run_veredus("pub", "trades", "--format", "json", "--file", file)
    assert (refused.code, "0 of 0" in refused.err, "--from" in refused.err) == (Exit.USAGE, False, False)
    assert "nothing was published" in refused.err


@pytest.mark.parametrize("options", [(), ("--source", "a"), ("--source", "a", "--no-resume")])
@pytest.mark.parametrize("line", ["no json", '{"key": "%s", "body": ""}' % ("k" * 300)], ids=["unreadable", "key"])
def test_where_the_first_record_is_not_valid_no_stream_is_created(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, options: tuple[str, ...], line: str
) -> None:
    file = tmp_path / "input"
    file.write_text(f'{line}\n{{"body": "x"}}\n')
    command = ("pub", "trades", *options, "--format", "json", "--file", file)
    refused = run_veredus(*command)
    assert (refused.code, "the record at byte 0 (line 1)" in refused.err) == (Exit.USAGE, True)
    assert "nothing was published" in refused.err
    assert node.streams.list() == []
    file.write_text(f'{{"body": "x"}}\n{line}\n')
    refused = run_veredus(*command)
    assert (refused.code, "1 of 1 publication was acknowledged" in refused.err) == (Exit.USAGE, True)
    assert node.streams.show("trades")["head"] == 1


def test_a_field_of_a_record_is_named_without_a_path(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text('{"key": 5}\n')
    refused = run_veredus("pub", "trades", "--format", "json", "--file", file)
    assert ("not valid: key: " in refused.err, "$." in refused.err) == (True, False)


def test_a_record_on_the_command_line_is_told_where_records_come_from(run_veredus: Veredus) -> None:
    refused = run_veredus("pub", "trades", "hello")
    assert (refused.code, "standard input or --file" in refused.err) == (Exit.USAGE, True)


def test_a_time_without_a_zone_is_written_out_with_one_that_works(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 1)
    said = run_veredus("sub", "trades", "--from", "2013-07-01").err
    assert "write 2013-07-01T00:00:00Z" in said
    assert run_veredus("sub", "trades", "--from", "2013-07-01T00:00:00Z", "--count", "1").lines == ["0"]


def test_the_subscription_main_needs_no_name(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 1)
    run_veredus("sub", "trades", "--subscriber", "risk", "--no-follow")
    assert run_veredus("subscription", "show", "trades", "risk").code == Exit.OK
    assert run_veredus("subscription", "rm", "trades", "risk", "--yes").code == Exit.OK


def test_a_sink_without_open_stages_is_said_to_have_none(run_veredus: Veredus) -> None:
    assert "has no open stages" in run_veredus("stage", "drop", "nightly", "--yes").err


def test_a_file_in_the_place_of_the_journal_is_called_a_file(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.touch()
    refused = run_veredus("serve", "--directory", file, "--tcp", "127.0.0.1:0")
    assert (refused.code, "a file is in its place" in refused.err) == (Exit.REFUSED, True)


def test_a_port_in_use_is_told_with_its_setting(run_veredus: Veredus, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run_veredus("serve", "--directory", tmp_path / "journal", "--tcp", address)
    assert (refused.code, "change listen.tcp" in refused.err) == (Exit.UNAVAILABLE, True)


def test_a_setting_outside_a_section_is_told_its_section(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "veredus.toml"
    file.write_text('tcp = "127.0.0.1:0"\nfoo = 1\n')
    said = run_veredus("serve", "--settings", file, "--check").err
    assert "'tcp' is in no section: it belongs in [listen]" in said
    assert "'foo' is in no section: write the section above it" in said


def test_a_terminal_that_is_read_is_told_so(run_veredus: Veredus, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Terminal(b"one\n")))
    assert "Ctrl-D" in run_veredus("pub", "trades").err


def test_help_says_the_exit_codes_and_variables_and_names_no_file(run_veredus: Veredus) -> None:
    shown = run_veredus("--help").out
    assert ("docs/" in shown, "VEREDUS_ADDRESS" in shown, "130" in shown) == (False, True, True)


def test_help_says_that_all_servers_of_topics_are_asked_and_one_node_of_several(run_veredus: Veredus) -> None:
    said = {
        verbs: " ".join(run_veredus(*verbs, "--help").out.split()) for verbs in (("stream", "ls"), ("topics", "show"))
    }
    assert "each of them is asked" in said["topics", "show"]
    assert "uses one that answers" not in said["topics", "show"]
    assert "uses one that answers" in said["stream", "ls"]


def test_help_breaks_no_name_of_a_fault(run_veredus: Veredus) -> None:
    assert {"block,", "partition,", "abandon,"} <= set(run_veredus("sim", "run", "--help").out.split())


def test_an_unknown_command_of_a_group_is_answered_with_those_there_are(run_veredus: Veredus) -> None:
    refused = run_veredus("stream", "delete", "trades")
    assert (refused.code, "use alter, create, ls, rm, show, trim" in refused.err) == (Exit.USAGE, True)


def test_who_begins_elsewhere_than_asked_for_is_told(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 3)
    durable = ("sub", "trades", "--subscriber", "risk", "--count", "1", "--from")
    assert run_veredus(*durable, "2").err == ""
    again = run_veredus(*durable, "1")
    assert (again.lines, "continues with sequence 3" in again.err) == (["2"], True)


def test_who_waits_at_an_empty_stream_is_told_so(node: Embedded) -> None:
    with started("sub", "trads", "--address", node.served.address) as watching:
        assert watching.stderr is not None
        assert any(b"stream trads is empty" in line for line in watching.stderr)


def test_a_shorter_input_is_called_shorter(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("1\n2\n3\n")
    run_veredus("pub", "trades", "--source", "desk", "--file", file)
    file.write_text("1\n2\n")
    refused = run_veredus("pub", "trades", "--source", "desk", "--file", file)
    assert (refused.code, "this input has 4 bytes, and the source has already published 6" in refused.err) == (
        Exit.REFUSED,
        True,
    )


def test_the_nodes_file_of_hashes_is_not_taken_for_a_token(run_veredus: Veredus, tmp_path: Path) -> None:
    run_veredus("token", "add", "desk", "--file", tmp_path / "tokens")
    refused = run_veredus("stream", "ls", "--token-file", tmp_path / "tokens")
    assert (refused.code, "must hold one token" in refused.err) == (Exit.USAGE, True)


def test_one_address_that_nobody_answers_at_is_said_once(run_veredus: Veredus) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        refused = run_veredus("stream", "ls", "--address", address, "--timeout", "1s")
    told = next(line for line in refused.err.splitlines() if line.startswith("veredus: "))
    assert (refused.code, told.count(address)) == (Exit.UNAVAILABLE, 1)


def test_records_of_a_stream_that_is_not_there_are_said_not_to_be(run_veredus: Veredus, tmp_path: Path) -> None:
    with embedded(tmp_path) as node:
        publish(node, "trades", 1)
    dumped = run_veredus("journal", "dump", tmp_path, "--stream", "trads")
    assert "there are no records of stream 'trads'; streams: trades" in dumped.err


def test_an_attribute_that_no_condition_could_name_is_refused(run_veredus: Veredus) -> None:
    refused = run_veredus("pub", "trades", "--attribute", "$key=a")
    assert (refused.code, "reserved" in refused.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--name", "eu"), "--name needs --subscriber"),
        (("--attempts-max", "3", "--park-to", "dead"), "need --subscriber"),
        (("--attempts-max", "3", "--subscriber", "a"), "--attempts-max needs --park-to"),
    ],
)
def test_an_option_that_lacks_another_names_it_as_it_is_written(
    run_veredus: Veredus, options: tuple[str, ...], said: str
) -> None:
    refused = run_veredus("sub", "trades", "--no-follow", *options)
    assert (refused.code, said in refused.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"order": 17, "total": 3.5}', 'there is no "body"'),
        ('{"body": "x", "attributes": {"id": 123456789012345678901}}', "attribute id: 123456789012345678901 does not"),
    ],
)
def test_json_that_would_lose_what_it_holds_is_refused_before_anything_is_published(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "orders.json"
    file.write_text(f"{line}\n")
    refused = run_veredus("pub", "trades", "--format", "json", "--file", file)
    assert (refused.code, said in refused.err, "in doubt" in refused.err) == (Exit.USAGE, True, False)
    assert node.streams.list() == []


def test_what_is_said_of_a_token_names_its_file(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = run_veredus("token", "add", "desk-1", "--file", file)
    assert f"--file {file}` revokes it" in made.err
    unknown = run_veredus("token", "rm", "abcdef", "--file", file)
    assert f"see `veredus token ls --file {file}`" in unknown.err
    elsewhere = run_veredus("token", "rm", "abcdef", "--file", tmp_path / "nope")
    assert (elsewhere.code, "there is no such file" in elsewhere.err) == (Exit.REFUSED, True)


@pytest.mark.parametrize(
    "options", [("--key", "caf\udce9"), ("--attribute", "caf\udce9=1"), ("--attribute", "name=caf\udce9")]
)
def test_what_is_not_utf8_on_the_command_line_is_named(run_veredus: Veredus, options: tuple[str, str]) -> None:
    refused = run_veredus("pub", "trades", *options)
    assert (refused.code, f"{options[0]}: " in refused.err, "is not UTF-8" in refused.err) == (Exit.USAGE, True, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--attribute", "big=99999999999999999999"), "--attribute: big: 99999999999999999999 does not fit 64 bits"),
        (("--attribute", "big=" + "9" * 5000), "9… does not fit 64 bits"),
        (("--attribute", "big=1e999"), "--attribute: big: 1e999 does not fit 64 bits"),
        (("--attribute", "n" * 256 + "=1"), "a name may have at most 255 bytes"),
        (("--attribute", "x=1", "--attribute", "x=2"), "--attribute: x is given twice"),
        (("--key", "k" * 256), "--key: a key may have at most 255 bytes, this one has 256"),
        (("--patience", "soon"), "--patience: 'soon' is not a duration"),
    ],
)
def test_what_no_publication_can_have_is_the_options_fault_before_anything_is_read(
    run_veredus: Veredus, node: Embedded, options: tuple[str, ...], said: str
) -> None:
    refused = run_veredus("pub", "trades", *options, "-a", "veredus://127.0.0.1:1")
    assert (refused.code, said in refused.err) == (Exit.USAGE, True), refused.err
    assert node.streams.list() == []


@pytest.mark.parametrize(
    "command",
    [
        ("pub", "trades", "--source", ""),
        ("pub", "trades", "--source="),
        ("pub", "trades", "--file", ""),
        ("sub", "trades", "--subscriber", ""),
        ("sub", "trades", "--subscriber", "a", "--name", ""),
        ("sub", "trades", "--park-to", ""),
        ("sub", "trades", "--multicast", ""),
        ("stream", "ls", "--address", ""),
        ("stream", "ls", "-a", "127.0.0.1", "-a", ""),
        ("stream", "ls", "--authorities", ""),
        ("stream", "ls", "--certificate", ""),
        ("audit", "--stream", ""),
        ("audit", "--into", ""),
        ("journal", "dump", ".", "--stream", ""),
        ("topics", "--id", "", "get", "news"),
        ("topics", "--directory", "", "get", "news"),
        ("proxy", "--listen", ""),
        ("serve", "--directory", ""),
        ("token", "ls", "--file", ""),
    ],
    ids=" ".join,
)
def test_an_option_that_names_nothing_is_refused(run_veredus: Veredus, command: tuple[str, ...]) -> None:
    refused = run_veredus(*command)
    assert (refused.code, "it is empty: give a name, or leave the option out" in refused.err) == (Exit.USAGE, True)
    option = [word.rstrip("=") for word in command if word.startswith("-")][-1]
    assert {"-a": "--address"}.get(option, option) in refused.err


def test_an_empty_variable_is_one_that_is_not_set(
    run_veredus: Veredus, node: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEREDUS_AUTHORITIES", "")
    assert run_veredus("stream", "ls").code == Exit.OK


def test_a_form_of_output_is_for_the_settings_and_not_for_a_node_that_runs(run_veredus: Veredus) -> None:
    refused = run_veredus("serve", "-o", "json")
    assert (refused.code, "--output is for --check" in refused.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("command", ["add", "add-key"])
@pytest.mark.parametrize("expires", ["0d", "0"])
def test_a_token_that_would_never_be_valid_is_not_made(
    run_veredus: Veredus, tmp_path: Path, command: str, expires: str
) -> None:
    file = tmp_path / "tokens"
    refused = run_veredus("token", command, "desk", "--expires", expires, "--file", str(file))
    assert (refused.code, refused.out) == (Exit.USAGE, "")
    assert "would never be valid: leave --expires out for one without end" in refused.err
    assert not file.exists()


def test_the_key_of_a_certificate_needs_the_certificate(run_veredus: Veredus) -> None:
    refused = run_veredus("stream", "ls", "--certificate-key", "client.key")
    assert refused.code == Exit.USAGE
    assert "--certificate-key goes with --certificate" in refused.err


@pytest.mark.parametrize("seeds", ["0", "-1", "many"])
def test_a_run_of_no_seeds_checks_nothing_and_is_refused(run_veredus: Veredus, seeds: str, tmp_path: Path) -> None:
    refused = run_veredus("sim", "run", "--seeds", seeds)
    assert refused.code == Exit.USAGE
    assert refused.err.startswith("Usage: veredus sim run")
    assert "\nError: argument --seeds: " in refused.err
    assert run_veredus("sim", "campaign", "--ledger", str(tmp_path / "ledger"), "--seeds", seeds).code == Exit.USAGE


def test_a_condition_with_two_minus_signs_is_warned_of(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 1)
    read = run_veredus("sub", "trades", "--no-follow", "--where", "n > 1 -- more")
    assert (read.code, "-- begins no comment" in read.err) == (Exit.OK, True)


def test_several_patterns_in_one_are_warned_of(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 1)
    read = run_veredus("sub", "trades", "--no-follow", "--key", "a,b")
    assert (read.code, "give several patterns one by one" in read.err) == (Exit.OK, True)


@pytest.mark.parametrize("options", [(), ("--source", "desk")], ids=["anonymous", "resumed"])
def test_a_record_that_no_node_takes_is_named_by_its_place_and_all_before_it_are_published(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "input"
    large = "x" * ((16 << 20) + 1)
    file.write_text(f"one\ntwo\n{large}\nfour\n")
    refused = run_veredus("pub", "trades", "--file", file, *options)
    assert (refused.code, "[too-large]" in refused.err) == (Exit.USAGE, True)
    assert "the record at byte 8 (line 3): the node accepts bodies of at most" in refused.err
    assert node.streams.show("trades")["head"] == 2
    long_key = json.dumps({"key": "k" * 256, "body": ""})
    file.write_text('{"body": "one"}\n\n' + long_key + "\n")
    refused = run_veredus("pub", "keys", "--format", "json", "--file", file, *options)
    assert "the record at byte 17 (line 3): a key may have at most 255 bytes" in refused.err
    assert node.streams.show("keys")["head"] == 1
    if options:
        file.write_text('{"body": "one"}\n\n{"body": "two"}\n')
        assert run_veredus("pub", "keys", "--format", "json", "--file", file, *options).code == Exit.OK
        assert node.streams.show("keys")["head"] == 2


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"body": "x", "attributes": {"q": 1e400}}', "attribute q: 1e400 does not fit 64 bits"),
        ('{"body": "x", "more": ' + "[" * 100_000 + "]" * 100_000 + "}", "it is nested too deeply"),
        ('{"body": "x", "event_time": "0001-01-01T00:00:00+14:00"}', "event time"),
        ('{"body": "x", "attributes": {"t": {"$timestamp": "9999-12-31T23:59:59-14:00"}}}', "of the years 1 to 9999"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_and_all_before_it_are_published(
    run_veredus: Veredus, node: Embedded, tmp_path: Path, record: str, said: str
) -> None:
    file = tmp_path / "records.json"
    file.write_text('{"body": "right"}\n' * 5000 + record + "\n")
    refused = run_veredus("pub", "trades", "--format", "json", "--file", file)
    assert refused.code == Exit.USAGE
    assert said in refused.err
    assert "the record at byte 90000 (line 5001)" in refused.err
    assert node.streams.show("trades")["head"] == 5000


def test_what_was_read_before_the_input_fails_is_published(
    run_veredus: Veredus, node: Embedded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "records"
    file.write_text("one\ntwo\n")
    pieces = [b"one\ntwo\n"]

    def read(_: RememberingInput, size: int) -> bytes:
        if pieces:
            return pieces.pop()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(RememberingInput, "_read", read)
    failed = run_veredus("pub", "trades", "--file", file)
    assert (failed.code, "Input/output error" in failed.err) == (Exit.ERROR, True)
    assert node.streams.show("trades")["head"] == 2


def test_a_message_that_stands_where_a_file_is_named_is_told_where_it_comes_from(run_veredus: Veredus) -> None:
    refused = run_veredus("topics", "--id", "alice", "--proxy", "127.0.0.1:1", "put", "rules", "hello")
    assert refused.code == Exit.USAGE
    assert "to put a text, write it to standard input: echo hello | veredus topics put TOPIC" in refused.err


def test_a_unix_socket_that_is_not_there_is_said_to_be_missing(run_veredus: Veredus, tmp_path: Path) -> None:
    refused = run_veredus("stream", "ls", "--address", f"unix://{tmp_path}/nowhere", "--timeout", "0.3s")
    assert refused.code == Exit.UNAVAILABLE
    assert "this path does not exist" in refused.err


def test_a_node_that_cannot_start_leaves_nothing_in_a_directory_that_it_has_made(
    run_veredus: Veredus, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = ("--tcp", where, "--set", "listen.zeromq=", "--set", "listen.metrics=")
        refused = run_veredus("serve", "--directory", tmp_path / "new", *listen)
        (tmp_path / "old").mkdir()
        run_veredus("serve", "--directory", tmp_path / "old", *listen)
    assert refused.code == Exit.UNAVAILABLE
    assert [found.name for found in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tcp", "{taken}"), "or change listen.tcp (--tcp or VEREDUS_LISTEN_TCP) [port-in-use]"),
        (("--tcp", "0.0.0.0:1"), "use listen.tls (--set or VEREDUS_LISTEN_TLS) with rules"),
        (("--tcp", "x"), "veredus: flag --tcp: listen.tcp: 'x' is not an address"),
        (("--directory", __file__), "name another directory (--directory or VEREDUS_NODE_DIRECTORY) [journal-dir"),
        (("--set", "security.tokens=/nope"), "\ndefault: security.rules: no rule allows anything"),
    ],
)
def test_an_error_of_a_setting_names_the_flag_and_the_variable_that_set_it(
    run_veredus: Veredus, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as socket_:
        taken = f"127.0.0.1:{socket_.getsockname()[1]}"
        others = ("--directory", tmp_path / "new", "--set", "listen.zeromq=", "--set", "listen.metrics=")
        refused = run_veredus("serve", *others, *(each.replace("{taken}", taken) for each in given))
    assert said in refused.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("topics", "serve", "{taken}"), "change topics.listen (--set or VEREDUS_TOPICS_LISTEN) [port-in-use]"),
        (
            ("topics", "--directory", __file__, "serve", "127.0.0.1:0"),
            "name another directory (--directory or VEREDUS_NODE_DIRECTORY) [journal-dir",
        ),
        (("topics", "serve", "0.0.0.0:1"), "argument ID: topics.listen: 0.0.0.0:1 is open to other machines"),
        (("topics", "serve", "0.0.0.0:1"), "set security.zeromq_key (--set or VEREDUS_SECURITY_ZEROMQ_KEY)"),
        (("proxy", "--listen", "{taken}"), "change topics.listen (--listen or VEREDUS_TOPICS_LISTEN) [port-in-use]"),
        (("proxy", "--listen", "0.0.0.0:1"), "set security.zeromq_key (--set or VEREDUS_SECURITY_ZEROMQ_KEY)"),
        (
            ("proxy", "--set", "topics.proxies="),
            "none in topics.proxies (--set or VEREDUS_TOPICS_PROXIES) [bad-settings",
        ),
    ],
)
def test_so_does_an_error_of_a_server_of_topics_and_of_a_proxy(
    run_veredus: Veredus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as socket_:
        taken = f"127.0.0.1:{socket_.getsockname()[1]}"
        refused = run_veredus(*(each.replace("{taken}", taken) for each in given))
    assert said in refused.err
