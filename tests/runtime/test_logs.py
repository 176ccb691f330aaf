"""A log line has a name and fields, and no peer can make too many of them."""

import io
import json

import structlog

from veredus.runtime.logs import LINES_PER_SECOND_MAX, Throttle, set_up_logs


def test_a_machine_gets_one_json_object_for_each_line() -> None:
    target = io.StringIO()
    set_up_logs("info", "auto", target)
    structlog.get_logger("veredus").log(20, "link_opened", peer=("127.0.0.1", 7), key=b"\xff\x00", why=ValueError("no"))
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
    set_up_logs("info", "console", target)
    structlog.get_logger("veredus").log(30, "disk_full", free_size=0)
    assert "disk_full" in target.getvalue()
    assert "free_size=0" in target.getvalue()
    assert "\x1b" not in target.getvalue()


def test_what_is_below_the_level_is_not_written() -> None:
    target = io.StringIO()
    set_up_logs("warning", "json", target)
    structlog.get_logger("veredus").log(20, "link_opened")
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
