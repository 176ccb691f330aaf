"""A log line has a name and fields, and no peer can make too many of them."""

import io
import json

import structlog

from veredus.runtime.logs import (
    LINES_PER_SECOND_MAX,
    PEER_INTERVAL_S,
    PEER_LINES_MAX,
    Logger,
    Throttle,
    lost_line_count,
    set_up_logs,
)


def test_a_machine_gets_one_json_object_for_each_line() -> None:
    target = io.StringIO()
    writer = set_up_logs("info", "auto", target)
    structlog.get_logger("veredus").log(20, "link_opened", peer=("127.0.0.1", 7), key=b"\xff\x00", why=ValueError("no"))
    assert writer.wait_written()
    line = json.loads(target.getvalue())
    assert (line["event"], line["level"], line["peer"], line["key"]) == (
        "link_opened",
        "info",
        ["127.0.0.1", 7],
        "ff00",
    )
    assert line["timestamp"].endswith("Z")


def test_a_person_gets_text_without_colour_codes_unless_on_a_terminal() -> None:
    target = io.StringIO()
    writer = set_up_logs("info", "console", target)
    structlog.get_logger("veredus").log(30, "disk_full", free_size=0)
    assert writer.wait_written()
    assert "disk_full" in target.getvalue()
    assert "free_size=0" in target.getvalue()
    assert "\x1b" not in target.getvalue()


def test_what_is_below_the_level_is_not_written() -> None:
    target = io.StringIO()
    writer = set_up_logs("warning", "json", target)
    structlog.get_logger("veredus").log(20, "link_opened")
    assert writer.wait_written()
    assert target.getvalue() == ""


def test_a_flood_of_one_event_is_held_back_and_counted_and_others_pass() -> None:
    seconds = [100.0]
    throttle = Throttle(lambda: seconds[0])

    def passes(name: str) -> dict[str, object] | None:
        try:
            return dict(throttle(None, "info", {"event": name}))
        except structlog.DropEvent:
            return None

    passed = [passes("peer_fault") for _ in range(LINES_PER_SECOND_MAX + 30)]
    assert sum(fields is not None for fields in passed) == LINES_PER_SECOND_MAX
    assert passes("link_opened") == {"event": "link_opened"}
    seconds[0] += 1.0
    assert passes("peer_fault") == {"event": "peer_fault", "held_back": 30}
    assert passes("peer_fault") == {"event": "peer_fault"}


def test_one_peer_is_held_back_by_its_address_whatever_its_port_and_hides_no_other() -> None:
    seconds = [100.0]
    throttle = Throttle(lambda: seconds[0])

    def passes(peer: str) -> bool:
        try:
            throttle(None, "warning", {"event": "peer-broke-protocol", "peer": peer})
        except structlog.DropEvent:
            return False
        return True

    assert sum(passes(f"10.0.0.1:{port}") for port in range(1000)) == PEER_LINES_MAX
    assert passes("10.0.0.2:1")
    assert throttle.is_holding
    assert throttle.ended() == []
    seconds[0] += PEER_INTERVAL_S
    assert throttle.ended() == [("peer-broke-protocol", "10.0.0.1", 1000 - PEER_LINES_MAX)]
    assert not throttle.is_holding
    assert throttle.ended() == []


def test_one_peer_is_held_back_also_where_it_has_very_many_addresses_of_ipv6() -> None:
    throttle = Throttle(lambda: 100.0)

    def passes(peer: str) -> bool:
        try:
            throttle(None, "warning", {"event": "peer-broke-protocol", "peer": peer})
        except structlog.DropEvent:
            return False
        return True

    assert sum(passes(f"[2001:db8::{number:x}]:4242") for number in range(1000)) == PEER_LINES_MAX
    assert passes("[2001:db8:0:1::1]:4242")


def test_what_a_peer_says_moves_no_cursor_of_a_terminal_and_begins_no_line() -> None:
    target = io.StringIO()
    writer = set_up_logs("info", "console", target)
    said = "stream.\x1b[2J\x9b2J\r\nveredus"
    Logger().info("administration-refused", verb=said, arguments={said: said}, error=ValueError(said))
    try:
        raise ValueError(said)
    except ValueError as error:
        Logger().error("callback-failed", exc_info=error)
    assert writer.wait_written()
    assert not {"\x1b", "\x9b", "\r"} & set(target.getvalue())
    assert "stream.\\x1b[2J\\x9b2J\\r\\nveredus" in target.getvalue()


def test_what_cannot_be_written_or_even_made_is_counted_and_raises_nothing() -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise ValueError("no words")

        __repr__ = __str__

    writer = set_up_logs("info", "json", io.StringIO())
    before = lost_line_count()
    Logger().info("odd", what=Unspeakable())
    assert writer.wait_written()
    assert lost_line_count() == before + 1
