"""A flag beats a variable, a variable the file, the file the default; what is wrong is named with its place."""

from pathlib import Path

import pytest

from veredus.kernel.errors import Refused
from veredus.node.settings import SETTINGS
from veredus.runtime.configuration import Flag, read_configuration
from veredus.runtime.limits import config_of


def written(directory: Path, text: str) -> Path:
    file = directory / "veredus.toml"
    file.write_text(text, encoding="utf-8")
    return file


def faults(directory: Path, text: str) -> list[str]:
    file = written(directory, text)
    with pytest.raises(Refused) as caught:
        read_configuration(file)
    assert caught.value.code == "bad-settings"
    return [fault.removeprefix(f"{file}:") for fault in caught.value.message.split("\n")]


def test_each_layer_covers_the_one_below_and_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, '[node]\nname = "file"\n[journal]\nsync = "none"\nsegment_size = "1 MiB"\n')
    environment = {"VEREDUS_JOURNAL_SYNC": "interval", "VEREDUS_NODE_NAME": "variable", "HOME": "unread"}
    read = read_configuration(file, environment, [Flag("node.name", "flag", "--name")])
    settings = read.settings
    assert (settings.node.name, settings.journal.sync, settings.journal.segment_size) == ("flag", "interval", 1 << 20)
    assert read.origin("node.name") == "flag --name"
    assert read.origin("journal.sync") == "variable VEREDUS_JOURNAL_SYNC"
    assert read.origin("journal.segment_size") == f"{file}:5:1"
    assert read.origin("listen.tcp") == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[journal]\nsync = off # as before", '2:8: off is no value: put text between quotes, sync = "off"'),
        ("[journal]\nsync = interval", '2:8: interval is no value: put text between quotes, sync = "interval"'),
        ("[listen]\nmetrics_open = True", "2:16: True is no value: write true or false in small letters"),
        ("[limits]\nstage_lease = 1h", 'put text between quotes, stage_lease = "1h"'),
        ("[listen]\n[listen]", "2:8: this is not TOML: Cannot declare [listen] twice"),
        ("[a.b]\n[a.b]", "2:5: this is not TOML: Cannot declare [a.b] twice"),
        ("[journal]\nsync =", "2:1: this is not TOML: Invalid value"),
    ],
)
def test_a_value_without_its_quotes_is_told_to_get_them(tmp_path: Path, text: str, said: str) -> None:
    (fault,) = faults(tmp_path, text)
    assert said in fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[node]\n[" + "a." * 200_000 + "a]", "2:65: a key may have at most 32 parts that dots join"),
        ("[node]\n" + "a." * 200_000 + "a = 1", "2:64: a key may have at most 32 parts that dots join"),
        ("[node]\nname = " + "[" * 400_000, "2:40: arrays and tables may be nested at most 32 deep"),
    ],
)
def test_what_is_nested_too_deep_is_told_with_its_place_and_the_limit(tmp_path: Path, text: str, said: str) -> None:
    assert faults(tmp_path, text) == [said]


def test_without_anything_the_defaults_hold() -> None:
    read = read_configuration()
    assert all(read.origin(setting.path) == "default" for setting in SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.path)
def test_every_setting_can_be_given_by_its_variable(setting) -> None:
    text = setting.format(setting.default)
    read = read_configuration(None, {setting.variable: text})
    assert getattr(getattr(read.settings, setting.section), setting.field) == setting.default
    assert read.origin(setting.path) == f"variable {setting.variable}"


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[node]\ndirectory = "data"\n[listen]\nunix = "/run/veredus.sock"\n')
    settings = read_configuration(file, {"VEREDUS_SECURITY_TOKENS": ""}).settings
    assert settings.node.directory == str(tmp_path / "data")
    assert settings.listen.unix == "/run/veredus.sock"
    assert settings.security.tokens == ""


def test_a_configured_stream_inherits_what_it_does_not_say(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[streams]\nretention_age = "7d"\nretention_size = "1 GiB"\n[stream."trades.eu"]\nretention_age = "1h"\n',
    )
    config = config_of(read_configuration(file).settings.stream["trades.eu"])
    assert (config.retention_age_s, config.retention_size) == (3600.0, 1 << 30)


def test_rules_are_read_in_their_order(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[security]\ntokens = "tokens"\n'
        '[[security.rules]]\nprincipal = "desk-*"\nmay = ["publish"]\nstreams = ["trades.>"]\n'
        '[[security.rules]]\nprincipal = "operator"\nmay = "*"\n',
    )
    first, second = read_configuration(file).settings.security.rules
    assert (first.principal, first.may, first.streams) == ("desk-*", ("publish",), ("trades.>",))
    assert (second.may, second.streams) == (("*",), None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[node]\nnam = 'x'\n", "2:1: [node] has no setting 'nam'; did you mean name?"),
        ("[jurnal]\n", "1:1: there is no section [jurnal]; did you mean journal?"),
        ("[node]\nsync = 'group'\n", "2:1: [node] has no setting 'sync'; it belongs in [journal]"),
        ("journal = 5\n", "1:1: journal is a section: write [journal] above its settings"),
        ("[stream.trades.eu]\nretention_age='1h'\n", '1:1: quote a name with dots: [stream."trades.eu"]'),
        (
            "[stream.a]\nretention_ag = '1h'\n",
            "2:1: a stream has no setting 'retention_ag'; did you mean retention_age?",
        ),
        ("[stream]\na = 1\n", '2:1: write [stream."a"] above the settings of a stream'),
        ("[[security.rules]]\nprincipal='a'\nmey='publish'\n", "3:1: a rule has no 'mey'; did you mean may?"),
        ("[security]\nrules = 5\n", "2:1: each rule must be a table: write [[security.rules]] above it"),
    ],
)
def test_what_is_not_known_is_named_with_its_place_and_the_nearest_name(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text)[0] == fault


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("[node\n", "1:6: "),
        ("a = 1\na = 2\n", "2:6: "),
        ("[journal]\nsegment_size = '1 kB'\n", "2:1: journal.segment_size: '1 kB' is out of range"),
        ("[stream.'a b']\n", "1:1: stream name 'a b': character ' ' at position 1"),
        ("[[security.rules]]\nprincipal='a'\nmay=['fly']\n", "1:1: 'fly' is not a verb"),
        ("[[security.rules]]\nprincipal='a'\n", "1:1: a rule names a principal"),
        ("[listen]\ntcp='0.0.0.0:1'\n", "2:1: listen.tcp: 0.0.0.0:1 is open to other machines"),
    ],
)
def test_a_bad_value_is_named_with_its_place(tmp_path: Path, text: str, start: str) -> None:
    assert faults(tmp_path, text)[0].startswith(start)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    assert len(faults(tmp_path, "[node]\nnam = 'x'\n[journal]\nsync = 'grop'\n[lisen]\n")) == 3


def test_all_faults_of_a_rule_are_told_at_once(tmp_path: Path) -> None:
    rule = 'principal = "desk"\nmay = ["read", "pub"]\nstreams = ["trades.>.x", ""]\n'
    said = "\n".join(faults(tmp_path, f"[[security.rules]]\n{rule}"))
    assert all(word in said for word in ("'read'", "'pub'", "'trades.>.x'", "''"))
    assert len(said.splitlines()) == 4


def test_a_fault_of_one_setting_hides_none_of_the_settings_as_a_whole(tmp_path: Path) -> None:
    said = faults(tmp_path, '[listen]\ntcp = 7071\nmetrics = "0.0.0.0:7073"\n')
    assert [fault.split(": ")[1] for fault in said] == ["listen.tcp", "listen.metrics"]
    said = faults(tmp_path, '[limits]\nstreams_max = "ten"\nsilence_max = "5s"\n')
    assert [fault.split(": ")[1] for fault in said] == ["limits.streams_max", "limits.silence_max"]


def test_no_fault_is_told_of_a_default_that_stands_in_for_what_could_not_be_read(tmp_path: Path) -> None:
    assert len(faults(tmp_path, '[limits]\nheartbeat_interval = "soon"\nsilence_max = "5s"\n')) == 1


def test_an_unknown_variable_or_flag_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match="did you mean VEREDUS_JOURNAL_SYNC"):
        read_configuration(None, {"VEREDUS_JOURNAL_SINC": "group"})
    with pytest.raises(Refused, match=r"did you mean journal\.sync"):
        read_configuration(None, {}, [Flag("journal.sinc", "group", "--set")])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere\.toml: cannot be read"):
        read_configuration(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"[node]\nname = '\xff'\n")
    with pytest.raises(Refused, match="not UTF-8 at byte 15"):
        read_configuration(binary)


LINKS = {
    "VEREDUS_PORT": "tcp://10.0.0.7:7071",
    "VEREDUS_SERVICE_HOST": "10.0.0.7",
    "VEREDUS_SERVICE_PORT": "7071",
    "VEREDUS_SERVICE_PORT_NATIVE": "7071",
    "VEREDUS_PORT_7071_TCP": "tcp://10.0.0.7:7071",
    "VEREDUS_PORT_7071_TCP_PROTO": "tcp",
    "VEREDUS_PORT_7071_TCP_PORT": "7071",
    "VEREDUS_PORT_7071_TCP_ADDR": "10.0.0.7",
    "VEREDUS_METRICS_SERVICE_HOST": "10.0.0.8",
    "VEREDUS_METRICS_PORT": "tcp://10.0.0.8:9000",
}


def test_what_a_service_named_like_us_injects_is_passed_over_with_a_note() -> None:
    read = read_configuration(None, {**LINKS, "VEREDUS_NODE_NAME": "one"})
    assert read.settings.node.name == "one"
    assert [text.split(" ")[0] for text in read.notes] == sorted(LINKS)


def test_a_variable_like_no_setting_is_passed_over_and_one_that_is_nearly_one_is_not() -> None:
    read = read_configuration(None, {"VEREDUS_HOME": "/opt/veredus"})
    assert read.notes == ("VEREDUS_HOME is ignored: there is no such setting",)
    for slip, meant in (("VEREDUS_JOURNAL_SYNK", "VEREDUS_JOURNAL_SYNC"), ("VEREDUS_ADRESS", "VEREDUS_ADDRESS")):
        with pytest.raises(Refused, match=f"did you mean {meant}"):
            read_configuration(None, {slip: "none"})
