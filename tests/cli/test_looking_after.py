"""Streams, subscriptions and journals are looked after from the command line; people get tables, programs JSON."""

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from tests.certificates import CERTIFICATES
from tests.cli.conftest import Veredus
from tests.journal.rig import as_killed
from veredus.cli import veredus
from veredus.cli.exits import Exit, run
from veredus.client.embedded import Embedded, embedded
from veredus.node.rules import Rule
from veredus.runtime.security import add_token
from veredus.streams.replay import Replay


def publish(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream, source="desk") as publisher:
        for index in range(count):
            publisher.publish("key", b"%d" % index)


def test_a_stream_is_created_shown_trimmed_and_removed(run_veredus: Veredus, node: Embedded) -> None:
    made = run_veredus(
        "stream", "create", "trades.eu", "--retention-age", "7d", "--retention-size", "1 GiB", "-o", "json"
    )
    config = json.loads(made.out)["config"]
    assert (config["retention_age_s"], config["retention_size"]) == (604_800.0, 1 << 30)
    publish(node, "trades.eu", 10)
    (line,) = run_veredus("stream", "ls", "-o", "jsonl").lines
    assert (json.loads(line)["name"], json.loads(line)["head"]) == ("trades.eu", 10)
    assert (
        json.loads(run_veredus("stream", "trim", "trades.eu", "--before", "4", "--yes", "-o", "json").out)["floor"] == 4
    )
    shown = json.loads(run_veredus("stream", "show", "trades.eu", "-o", "json").out)
    assert (shown["floor"], shown["source_list"][0]["name"]) == (4, "desk")
    assert run_veredus("stream", "rm", "trades.eu", "--yes").code == Exit.OK
    assert run_veredus("stream", "ls", "-o", "json").out == "[]\n"


def test_to_create_a_stream_again_is_harmless_and_otherwise_is_refused(run_veredus: Veredus) -> None:
    assert run_veredus("stream", "create", "trades", "--retention-count", "10").code == Exit.OK
    assert run_veredus("stream", "create", "trades", "--retention-count", "10").code == Exit.OK
    other = run_veredus("stream", "create", "trades", "--retention-count", "11")
    assert (other.code, "[exists-otherwise]" in other.err) == (Exit.REFUSED, True)


def test_what_cannot_be_undone_is_not_done_without_being_asked(run_veredus: Veredus, node: Embedded) -> None:
    node.streams.create("trades")
    assert run_veredus("stream", "rm", "trades").code == Exit.USAGE
    assert [stream["name"] for stream in node.streams.list()] == ["trades"]


def test_dead_letters_are_moved_back_once_and_counted_by_stream(run_veredus: Veredus, node: Embedded) -> None:
    node.streams.create("jobs.dead")
    assert "stream jobs.dead has no dead letters" in run_veredus("subscription", "redrive", "jobs.dead").err
    for stream, count in (("jobs.a", 3), ("jobs.b", 2)):
        publish(node, stream, count)
        durable = {"subscriber": "worker", "mode": "individual", "parked_to": "jobs.dead", "until": count + 1}
        with node.subscribe(stream, **durable) as jobs:
            for job in jobs:
                job.reject("bad")
    assert [line.split() for line in run_veredus("subscription", "redrive", "jobs.dead").lines] == [
        ["stream", "moved"],
        ["jobs.a", "3"],
        ["jobs.b", "2"],
    ]
    again = json.loads(run_veredus("subscription", "redrive", "jobs.dead", "-o", "json").out)
    assert again == [{"stream": "jobs.a", "moved": 0}, {"stream": "jobs.b", "moved": 0}]
    assert run_veredus("sub", "jobs.b", "--no-follow").lines == ["0", "1", "0", "1"]


def test_to_trim_asks_first_says_how_many_are_gone_and_ends_at_the_head(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 10)
    asked = run_veredus("stream", "trim", "trades", "--before", "4")
    assert (asked.code, "--yes" in asked.err) == (Exit.USAGE, True)
    beyond = run_veredus("stream", "trim", "trades", "--before", "12", "--yes")
    assert (beyond.code, "ends at sequence 10" in beyond.err) == (Exit.USAGE, True)
    assert node.streams.show("trades")["floor"] == 1
    done = run_veredus("stream", "trim", "trades", "--keep", "2", "--yes")
    assert (done.code, "8 publications of stream trades were deleted" in done.err) == (Exit.OK, True)
    assert run_veredus("stream", "trim", "trades", "--keep", "5").code == Exit.OK


def test_a_file_of_tokens_that_is_not_there_has_no_list(run_veredus: Veredus, tmp_path: Path) -> None:
    nothing = run_veredus("token", "ls", "--file", tmp_path / "nope")
    assert (nothing.code, "there is no such file" in nothing.err) == (Exit.REFUSED, True)


def test_a_table_has_a_header_and_aligned_columns(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 3)
    header, row = run_veredus("stream", "ls").lines
    assert header.split()[:3] == ["name", "floor", "head"]
    assert row.split()[:3] == ["trades", "1", "3"]
    assert header.index("floor") == row.index("1")


def test_bad_quantities_are_usage_errors_that_say_how_to_write_them(run_veredus: Veredus) -> None:
    refused = run_veredus("stream", "create", "trades", "--retention-age", "7")
    assert (refused.code, "1h30m" in refused.err) == (Exit.USAGE, True)


def test_what_a_sink_has_staged_is_listed_and_dropped(run_veredus: Veredus, node: Embedded) -> None:
    with node.sink("nightly").open_run() as run, run.stage("trades") as stage:
        stage.publish("k", "unseen")
        stage.flush()
        header, row = run_veredus("stage", "ls").lines
        assert header.split()[:2] == ["stage", "sink"]
        assert row.split()[1:5] == ["nightly", str(run.epoch), "trades", "1"]
        assert "dropped: 1" in run_veredus("stage", "drop", "nightly", "--yes").err
        assert node.sinks.stages() == []


def test_a_subscription_says_where_it_stands_and_what_it_waits_for(run_veredus: Veredus, node: Embedded) -> None:
    publish(node, "trades", 10)
    with node.subscribe("trades", subscriber="risk", name="main") as subscription:
        batch = subscription.next_batch()
        assert batch is not None
        batch.settle()
        subscription.wait_settled()
        shown = json.loads(run_veredus("subscription", "show", "trades", "risk", "main", "-o", "json").out)
        assert (shown["floor"], shown["lag"], shown["flow"], shown["is_attached"]) == (10, 0, "live", True)
        assert shown["credit"] > 0
        assert "waits_for" in shown
    header, row = run_veredus("subscription", "ls", "trades").lines
    assert header.split()[:5] == ["stream", "subscriber", "name", "floor", "lag"]
    assert row.split()[:5] == ["trades", "risk", "main", "10", "0"]
    assert run_veredus("subscription", "rm", "trades", "risk", "main", "--yes").code == Exit.OK
    gone = run_veredus("subscription", "show", "trades", "risk", "main")
    assert (gone.code, "[unknown-subscription]" in gone.err) == (Exit.REFUSED, True)


def test_verify_finds_nothing_wrong_with_a_node(run_veredus: Veredus, node: Embedded) -> None:
    judged = run_veredus("verify", "--count", "5000", "--sources", "3", "-o", "json")
    row = json.loads(judged.out)
    assert judged.code == Exit.OK
    assert (row["published"], row["acknowledged"], row["received"]) == (5000, 5000, 5000)
    assert (row["lost"], row["doubled"], row["out_of_order"]) == (0, 0, 0)
    assert node.streams.list() == []


def test_bench_measures_and_leaves_nothing_behind(run_veredus: Veredus, node: Embedded) -> None:
    measured = run_veredus("bench", "--seconds", "0.1", "--latencies", "5", "-o", "json")
    row = json.loads(measured.out)
    assert measured.code == Exit.OK
    assert row["publications"] > 0
    assert row["latency_ms_p50"] <= row["latency_ms_p99"] <= row["latency_ms_max"]
    assert node.streams.list() == []


def test_a_simulated_world_is_run_and_a_wrong_option_is_a_usage_error(run_veredus: Veredus) -> None:
    ran = run_veredus("sim", "run", "--seeds", "1", "--workers", "1")
    assert ran.code == Exit.OK
    assert [line.split() for line in ran.lines if line.startswith(("seeds", "lost", "doubled"))] == [
        ["seeds", "1"],
        ["lost", "0"],
        ["doubled", "0"],
    ]
    assert run_veredus("sim", "run", "--sedes", "1").code == Exit.USAGE


def test_a_seed_that_fails_is_named_at_once_and_not_with_the_report_alone(
    run_veredus: Veredus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "finish", lambda *_: None)
    ran = run_veredus("sim", "run", "--faults", "kill", "--first", "21", "--seeds", "2", "--workers", "1", "--whole")
    assert ran.code == Exit.VIOLATED
    failed = [line for line in ran.lines if line.startswith("seed ")]
    assert failed
    assert set(failed) <= set(ran.err.splitlines())


def test_a_journal_is_verified_and_dumped_when_no_node_uses_it(tmp_path: Path, run_veredus: Veredus) -> None:
    directory = tmp_path / "journal"
    with embedded(directory) as node:
        publish(node, "trades", 10)
        publish(node, "quotes", 5)
        assert run_veredus("journal", "verify", directory).code == Exit.REFUSED
    verified = run_veredus("journal", "verify", directory, "-o", "json")
    report = json.loads(verified.out)
    assert (verified.code, report["is_sound"], report["is_clean"]) == (Exit.OK, True, True)
    assert sum(segment["rows"] for segment in report["segments"]) == 15
    rows = [json.loads(line) for line in run_veredus("journal", "dump", directory, "-o", "jsonl").lines]
    assert {row["fact"]["name"] for row in rows if row["fact"] and row["fact"]["type"] == "stream"} == {
        "trades",
        "quotes",
    }
    batches = [
        json.loads(line)
        for line in run_veredus("journal", "dump", directory, "--stream", "quotes", "-o", "jsonl").lines
    ]
    assert sum(row["count"] or 0 for row in batches if row["kind"] == "batch") == 5
    assert len(run_veredus("journal", "dump", directory, "--count", "2", "-o", "jsonl").lines) == 2
    missing = run_veredus("journal", "dump", directory, "--segment", "99", "--segment", "1")
    assert (missing.code, missing.err) == (Exit.OK, "there is no segment 99; segments: 1\n")


def test_a_flipped_bit_in_a_journal_is_named_and_has_its_exit_code(tmp_path: Path, run_veredus: Veredus) -> None:
    directory = tmp_path / "journal"
    with embedded(directory, journal={"segment_size": 64 << 10}) as node:
        publish(node, "trades", 10)
        with node.publisher("trades", source="desk") as publisher:
            for _ in range(4):
                publisher.publish("key", b"x" * 40_000)
                publisher.flush()
    (first, *_) = sorted(directory.glob("*.segment"))
    data = bytearray(first.read_bytes())
    place = data.index(b"x" * 1000) + 500
    data[place] ^= 1
    first.write_bytes(data)
    verified = run_veredus("journal", "verify", directory)
    assert verified.code == Exit.DAMAGED
    assert "damage: segment=" in verified.err


def test_verify_waits_for_no_lock_that_is_no_file(tmp_path: Path, run_veredus: Veredus) -> None:
    directory = tmp_path / "journal"
    with embedded(directory) as node:
        publish(node, "s", 3)
    (directory / "lock").unlink()
    os.mkfifo(directory / "lock")
    assert run_veredus("journal", "verify", directory).code == Exit.OK


def test_a_stream_whose_making_was_damaged_is_named_with_what_is_kept_of_it(
    tmp_path: Path, run_veredus: Veredus
) -> None:
    directory = tmp_path / "journal"
    with embedded(directory) as node:
        publish(node, "lost", 10)
        publish(node, "kept", 5)
        copied = as_killed(directory, tmp_path / "killed")
    (first, *_) = sorted(copied.glob("*.segment"))
    data = bytearray(first.read_bytes())
    data[data.index(b"\xa4lost")] ^= 1
    first.write_bytes(data)
    for _ in range(2):
        verified = run_veredus("journal", "verify", copied)
        assert verified.code == Exit.DAMAGED
        assert "error: stream-orphaned stream_id=1 publications=10 first_sequence=1 last_sequence=10" in verified.err
        # The node passes the damage and goes on behind it: what is kept belongs to nothing still.
        with embedded(copied) as node:
            assert [stream["name"] for stream in node.streams.list()] == ["kept"]


def test_a_token_is_listed_with_the_day_on_which_it_expires(run_veredus: Veredus, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = json.loads(run_veredus("token", "add", "desk-1", "--file", file, "--expires", "90d", "-o", "json").out)
    lasting = run_veredus("token", "add", "desk-2", "--file", file, "-o", "json")
    listed = json.loads(run_veredus("token", "ls", "--file", file, "-o", "json").out)
    created, expires = (datetime.fromisoformat(made[name]) for name in ("created", "expires"))
    assert (expires - created).days == 90
    assert [row["expires"] for row in listed] == [made["expires"], json.loads(lasting.out)["expires"]]
    assert listed[1]["expires"] == ""


@pytest.mark.parametrize("expires", ["soon", "99999999999d", "90"])
def test_a_time_to_expire_that_makes_no_sense_makes_no_token(
    run_veredus: Veredus, tmp_path: Path, expires: str
) -> None:
    made = run_veredus("token", "add", "desk-1", "--file", tmp_path / "tokens", "--expires", expires)
    assert (made.code, made.out) == (Exit.USAGE, "")
    assert not (tmp_path / "tokens").exists()


def test_a_token_over_tls_is_worth_what_the_rules_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens"
    token, _ = add_token(tokens, "desk-1")
    rules = (
        Rule(principal="desk-*", may=("publish", "create"), streams=("trades.>",)),
        Rule(principal="local", may=("*",)),
    )
    tls = {"certificate": str(CERTIFICATES / "node.pem"), "key": str(CERTIFICATES / "node.key")}
    with embedded(listen={"tls": "127.0.0.1:0"}, tls=tls, security={"tokens": str(tokens), "rules": rules}) as node:
        address = node.served.addresses["tls"]
        monkeypatch.setenv("VEREDUS_ADDRESS", f"veredus+tls://{address}")
        monkeypatch.setenv("VEREDUS_AUTHORITIES", str(CERTIFICATES / "authority.pem"))
        file = tmp_path / "input"
        file.write_text("one\n")
        assert run(veredus, ["pub", "trades.eu", "--file", str(file)]) == Exit.REFUSED
        assert "[unauthenticated]" in capfd.readouterr().err
        monkeypatch.setenv("VEREDUS_TOKEN", token[:-1] + ("A" if token[-1] != "A" else "B"))
        assert run(veredus, ["pub", "trades.eu", "--file", str(file)]) == Exit.REFUSED
        monkeypatch.setenv("VEREDUS_TOKEN", token)
        assert run(veredus, ["pub", "trades.eu", "--file", str(file)]) == Exit.OK
        assert run(veredus, ["pub", "quotes.eu", "--file", str(file)]) == Exit.REFUSED
        assert "desk-1 may not" in capfd.readouterr().err
        assert [stream["name"] for stream in node.streams.list()] == ["trades.eu"]
        monkeypatch.delenv("VEREDUS_AUTHORITIES")
        assert run(veredus, ["pub", "trades.eu", "--file", str(file)]) == Exit.REFUSED
        assert "[bad-certificate]" in capfd.readouterr().err


def test_a_stream_is_altered_by_what_is_named(run_veredus: Veredus, node: Embedded) -> None:
    run_veredus("stream", "create", "kept", "--retention-age", "7d", "--retention-count", "5")
    assert run_veredus("stream", "alter", "kept").code == Exit.USAGE
    assert run_veredus("stream", "alter", "kept", "--retention-count", "0", "--retention-size", "1 GiB").code == Exit.OK
    config = node.streams.show("kept")["config"]
    assert (config["retention_age_s"], config.get("retention_count", 0), config["retention_size"]) == (
        7 * 86_400, 0, 1 << 30,
    )  # fmt: skip
