"""Ages, sizes and settings may be given as people write them; what is none is refused under the name that was given."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import veredus
from veredus.kernel.errors import Misuse, PeerFault
from veredus.protocols.zeps.frames import first_command


def test_how_long_a_stream_keeps_is_a_timedelta_or_text_and_how_much_is_text() -> None:
    with veredus.embedded() as node:
        node.streams.create("a", retention_age=timedelta(days=7), retention_size="1 GiB")
        again = node.streams.create("a", retention_age="7d", retention_size=1 << 30)
        assert again["config"] == {"retention_age_s": 604_800.0, "retention_size": 1 << 30}
        altered = node.streams.alter("a", retention_age="1h")
        assert altered["config"]["retention_age_s"] == 3600.0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"retention_age": 7}, 'retention_age must be a timedelta or text like "7d", not 7'),
        ({"retention_age": "7"}, "retention_age: '7' is not a duration"),
        ({"retention_age_s": "7d"}, "retention_age_s must be a number of seconds"),
        ({"retention_size": "1 GIB"}, "retention_size: '1 GIB' is not a size"),
        ({"retention_count": 1.5}, "retention_count must be a whole number from 0 to 2**63 - 1, not 1.5"),
        (
            {"retention_size": 2**64},
            "retention_size must be a whole number from 0 to 2**63 - 1, not 18446744073709551616",
        ),
        ({"sources_max": 0}, "sources_max must be a whole number from 1 to 2**63 - 1, not 0"),
        (
            {"retention_age": timedelta(-1)},
            "retention_age must be from 0 to 2**63 - 1 seconds, not datetime.timedelta(days=-1)",
        ),
        ({"retention_age": f"{10**30}d"}, "retention_age must be from 0 to 2**63 - 1 seconds, not '1000"),
        (
            {"retention_age_s": -1},
            "retention_age_s must be a number of seconds from 0 to 2**63 - 1 (or give retention_age)",
        ),
        ({"retention_age_s": math.nan}, "retention_age_s must be a number of seconds from 0 to 2**63 - 1"),
    ],
)
def test_what_is_no_age_or_size_is_refused_by_its_name(config: dict[str, Any], said: str) -> None:
    with veredus.embedded() as node, pytest.raises(Misuse) as caught:
        node.streams.create("a", **config)
    assert (caught.value.code, said in caught.value.message) == ("bad-config", True)


def test_a_trim_beyond_the_head_deletes_all_and_nothing_that_comes_later() -> None:
    with veredus.embedded() as node, node.publisher("a") as publisher:
        publisher.wait(publisher.publish("k", b"1"))
        assert node.streams.trim("a", 100)["floor"] == 2
        publisher.wait(publisher.publish("k", b"2"))
        assert node.streams.show("a")["floor"] == 2


def test_an_embedded_node_takes_settings_as_a_file_writes_them(tmp_path: Path) -> None:
    with veredus.embedded(tmp_path, streams={"retention_age": "7d"}, journal={"segment_size": "1 MiB"}) as node:
        settings = node.served.settings
        assert settings.streams.retention_age_ns == 7 * 86_400 * 10**9
        assert settings.journal.segment_size == 1 << 20


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"jurnal": {}}, "no section 'jurnal'"),
        ({"journal": "none"}, "section 'journal' must be a dict"),
        ({"journal": {"snyc": "none"}}, "section 'journal' has no setting 'snyc'"),
        ({"journal": {"sync": "never"}}, "journal.sync: 'never' is not one of"),
        ({"streams": {"retention_age": 7}}, "streams.retention_age: 7 has no unit"),
    ],
)
def test_settings_that_an_embedded_node_does_not_know_are_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(Misuse) as caught:
        veredus.embedded(**sections)
    assert (caught.value.code, said in caught.value.message) == ("bad-settings", True)


def test_a_peer_that_begins_with_tls_at_a_plain_listener_is_called_one() -> None:
    with pytest.raises(PeerFault, match="looks like TLS"):
        first_command(b"\x16\x03\x01\x02\x00")
