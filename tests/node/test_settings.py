"""Every setting has a unit, a meaning and a default that lies within its own bounds."""

import pytest

from veredus.kernel.addresses import split_address
from veredus.node.exposure import faults_of
from veredus.node.settings import SECTIONS, SETTINGS, NodeSettings
from veredus.node.specs import Setting, Unit

BY_PATH = {setting.path: setting for setting in SETTINGS}


def test_the_defaults_are_the_settings_of_a_valid_node() -> None:
    assert faults_of(NodeSettings()) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.path)
def test_every_default_is_within_its_bounds_and_read_back_as_it_is_shown(setting: Setting) -> None:
    assert setting.parse(setting.format(setting.default)) == setting.default
    assert setting.spec.meaning
    assert not setting.spec.meaning.endswith(".")


def test_every_field_of_a_section_is_a_setting_but_for_the_rules() -> None:
    fields = {f"{name}.{field}" for name, kind in SECTIONS.items() for field in kind.__struct_fields__}
    assert fields - {f"{s.section}.{s.field}" for s in SETTINGS} == {"security.rules"}


def test_durations_are_kept_in_nanoseconds_and_named_without_them() -> None:
    durations = [setting for setting in SETTINGS if setting.spec.unit is Unit.DURATION]
    assert durations
    assert all(s.field.endswith("_ns") and not s.name.endswith("_ns") for s in durations)
    assert BY_PATH["journal.sync_interval"].parse("250ms") == 250_000_000


@pytest.mark.parametrize(
    ("path", "given", "named"),
    [
        ("journal.segment_size", "1 kB", "at least 64 KiB and at most 4 GiB"),
        ("journal.segment_size", True, "not a number"),
        ("journal.segment_size", 1.5, "not a number"),
        ("journal.sync", "grop", "group, interval, none"),
        ("journal.sync_interval", 5, 'write "5s"'),
        ("limits.channels_max", "65536", "at most 65535"),
        ("listen.tcp", "7071", "host:port"),
        ("listen.tcp", "::1:7071", "brackets"),
        ("listen.tcp", "127.0.0.1:70710", "not a port"),
        ("listen.zeromq", "127.0.0.1:7072", "tcp://host:port"),
        ("listen.metrics_open", "maybe", "neither true nor false"),
        ("node.name", 5, "quotes"),
        ("node.name", "a\nb", "control character"),
        ("topics.servers", "127.0.0.1:0", "a port from 1 to 65535"),
        ("topics.proxies", ["*:7081"], "the name or address of a host"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_be_right(path: str, given: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        BY_PATH[path].parse(given)


def test_an_address_has_a_host_and_a_port() -> None:
    assert split_address("localhost:0") == ("localhost", 0)
    assert split_address("[::1]:7071") == ("::1", 7071)
    assert split_address("*:7071") == ("*", 7071)
    with pytest.raises(ValueError, match=r"'a\.\.b' cannot be the name of a host"):
        split_address("a..b:7071")
