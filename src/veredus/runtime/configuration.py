"""The effective settings of a node, each with where it came from: default < TOML file < `VEREDUS_*` environment < flag.

Every fault that can be found is told at once, each with its place (`veredus.toml:3:1`, a variable, a flag) and, for a
name that is not known, the nearest one that is. Relative paths in a file are relative to that file, others to the
working directory.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec

from veredus.kernel.errors import Refused
from veredus.kernel.names import checked_name
from veredus.kernel.toml_places import TooDeep, key_places, parsed_toml
from veredus.node.exposure import Fault, faults_of
from veredus.node.rules import Rule, rule_of
from veredus.node.settings import (
    SECTIONS,
    SETTINGS,
    STREAM_SETTINGS,
    NodeSettings,
    StreamSection,
    StreamsSection,
)
from veredus.node.specs import Setting, Unit

from .regular_files import FILE_SIZE_MAX, read_own

DEFAULT = "default"
VARIABLE_PREFIX = "VEREDUS_"
CLIENT_VARIABLES = ("VEREDUS_SETTINGS", "VEREDUS_ADDRESS", "VEREDUS_TOKEN", "VEREDUS_AUTHORITIES")
"""Variables that the command line reads for itself."""

_BY_PATH = {setting.path: setting for setting in SETTINGS}
_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}
_VARIABLE_ENDS = [variable.removeprefix(VARIABLE_PREFIX) for variable in (*_BY_VARIABLE, *CLIENT_VARIABLES)]
MISSPELT_LIKENESS = 0.8
"""A variable that is so like a setting's (1: equal) is taken for a slip, and not passed over."""
_LINK = re.compile(
    rf"{VARIABLE_PREFIX}(?:\w+_)?(?:PORT|NAME|HOST|SERVICE_HOST|SERVICE_PORT(?:_\w+)?"
    r"|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|ENV_\w+)"
)
_STREAM_BY_NAME = {setting.name: setting for setting in STREAM_SETTINGS}
_RULE_KEYS = Rule.__struct_fields__
_LINE_END = re.compile(r"\r\n?")
_UNQUOTED = re.compile(r"""\s*([\w.-]+)\s*=\s*([^\s"'\[{#=][^"'\[{#=]*?)\s*(?:#.*)?""")
_TOML_PATH = re.compile(r"\((?:'[^']*',? ?)+\)")
_TOML_PART = re.compile(r"'([^']*)'")
_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


class Flag(NamedTuple):
    """A setting that was given on the command line: its path, its text, and the flag's own name."""

    path: str
    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings, and where each of them came from by its path; what has no origin is a default."""

    settings: NodeSettings
    origins: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was passed over, each with the reason: variables that are no settings."""

    def origin(self, path: str) -> str:
        """Where a setting came from: `default`, `file:line:column`, a variable or a flag."""
        return self.origins.get(path, DEFAULT)


def read_configuration(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[Flag] = (),
    judge: Callable[[NodeSettings], Iterable[Fault]] = faults_of,
) -> Configuration:
    """Read, lay over one another, and check. Raises `Refused("bad-settings")` with every fault and its place.

    `judge` finds what is wrong with settings that are right one by one.
    """
    reading = _Reading()
    if file is not None:
        reading.read_file(file)
    reading.read_environment(environment or {})
    reading.read_flags(flags)
    return reading.finish(judge)


class _Reading:
    """Owns what was read so far, and the faults in it."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._origins: dict[str, str] = {}
        self._streams: dict[str, dict[str, object]] = {}
        self._rules: tuple[Rule, ...] = ()
        self._faults: list[str] = []
        self._unread: set[str] = set()
        """The paths of settings that were given and could not be read."""
        self._notes: list[str] = []

    def read_environment(self, environment: Mapping[str, str]) -> None:
        for variable in sorted(environment):
            if not variable.startswith(VARIABLE_PREFIX) or variable in CLIENT_VARIABLES:
                continue
            setting = _BY_VARIABLE.get(variable)
            value = environment[variable]
            if _is_link(variable, value):
                self._notes.append(f"{variable} is ignored: a container engine sets it to link to a service")
            elif setting is not None:
                self._take(setting, value, f"variable {variable}")
            elif near := _misspelt(variable):
                self._faults.append(f"{variable}: there is no such setting; did you mean {near}?")
            else:
                self._notes.append(f"{variable} is ignored: there is no such setting")

    def read_flags(self, flags: Sequence[Flag]) -> None:
        for flag in flags:
            setting = _BY_PATH.get(flag.path)
            origin = f"{'flag' if flag.name.startswith('-') else 'argument'} {flag.name}"
            if setting is None:
                self._faults.append(f"{origin}: there is no setting {flag.path!r}{_nearest(flag.path, _BY_PATH)}")
            else:
                self._take(setting, flag.text, origin)

    def read_file(self, file: Path) -> None:
        document = _Document(file)
        for section, table in document.values.items():
            path = (section,)
            if section == "stream" and isinstance(table, dict):
                self._read_streams(document, table)
            elif section not in SECTIONS and not isinstance(table, dict):
                places = [setting.section for setting in SETTINGS if setting.name == section]
                near = f"it belongs in [{places[0]}]" if places else "write the section above it, such as [listen]"
                self._faults.append(f"{document.place(path)}: {section!r} is in no section: {near}")
            elif section not in SECTIONS:
                near = _nearest(section, [*SECTIONS, "stream"])
                self._faults.append(f"{document.place(path)}: there is no section [{section}]{near}")
            elif not isinstance(table, dict):
                self._faults.append(
                    f"{document.place(path)}: {section} is a section: write [{section}] above its settings"
                )
            else:
                self._read_section(document, section, table)

    def finish(self, judge: Callable[[NodeSettings], Iterable[Fault]]) -> Configuration:
        """Put the settings together and judge them as a whole."""
        parts: dict[str, msgspec.Struct] = {}
        for section, kind in SECTIONS.items():
            given = {s.field: self._values[s.path] for s in SETTINGS if s.section == section and s.path in self._values}
            parts[section] = kind(**given)
        parts["security"] = msgspec.structs.replace(parts["security"], rules=self._rules)
        assert isinstance(parts["streams"], StreamsSection)
        streams = {name: _stream_section(parts["streams"], given) for name, given in self._streams.items()}
        settings = NodeSettings(**parts, stream=streams)  # type: ignore[arg-type]
        # A default stands in for what could not be read: what is wrong with that one, nobody has written.
        self._faults += [
            f"{self._origins.get(fault.path, DEFAULT)}: {fault.path}: {fault.sentence}"
            for fault in judge(settings)
            if self._unread.isdisjoint((fault.path, *fault.others))
        ]
        if self._faults:
            raise Refused("bad-settings", "\n".join(self._faults), faults=self._faults)
        return Configuration(settings, self._origins, tuple(self._notes))

    def _take(self, setting: Setting, given: object, origin: str, relative_to: Path | None = None) -> None:
        try:
            value = setting.parse(given)
        except ValueError as error:
            self._faults.append(f"{origin}: {setting.path}: {error}")
            self._unread.add(setting.path)
            return
        self._unread.discard(setting.path)
        if setting.spec.unit is Unit.PATH and value and relative_to is not None:
            value = str(relative_to / str(value))
        self._values[setting.path] = value
        self._origins[setting.path] = origin

    def _read_section(self, document: _Document, section: str, table: dict[str, object]) -> None:
        names = [setting.name for setting in SETTINGS if setting.section == section]
        for name, given in table.items():
            origin = document.place((section, name))
            setting = _BY_PATH.get(f"{section}.{name}")
            if (section, name) == ("security", "rules"):
                self._origins["security.rules"] = origin
                count = len(self._faults)
                self._rules = tuple(self._read_rules(document, given))
                if len(self._faults) > count:
                    self._unread.add("security.rules")
            elif setting is not None:
                self._take(setting, given, origin, document.directory)
            else:
                elsewhere = [s.section for s in SETTINGS if s.name == name]
                near = f"; it belongs in [{elsewhere[0]}]" if elsewhere else _nearest(name, names)
                self._faults.append(f"{origin}: [{section}] has no setting {name!r}{near}")

    def _read_streams(self, document: _Document, tables: dict[str, object]) -> None:
        for name, table in tables.items():
            origin = document.place(("stream", name))
            try:
                checked_name("stream", name)
            except Refused as refused:
                self._faults.append(f"{origin}: {refused.message}")
            if not isinstance(table, dict):
                self._faults.append(f'{origin}: write [stream."{name}"] above the settings of a stream')
                continue
            given = self._streams.setdefault(name, {})
            for key, value in table.items():
                place = document.place(("stream", name, key))
                setting = _STREAM_BY_NAME.get(key)
                if setting is not None:
                    try:
                        given[setting.field] = setting.parse(value)
                    except ValueError as error:
                        self._faults.append(f"{place}: {key}: {error}")
                elif isinstance(value, dict):
                    self._faults.append(f'{place}: quote a name with dots: [stream."{name}.{key}"]')
                else:
                    self._faults.append(f"{place}: a stream has no setting {key!r}{_nearest(key, _STREAM_BY_NAME)}")
            self._origins[f"stream.{name}"] = origin

    def _read_rules(self, document: _Document, given: object) -> Iterable[Rule]:
        path: tuple[str | int, ...] = ("security", "rules")
        if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
            self._faults.append(f"{document.place(path)}: each rule must be a table: write [[security.rules]] above it")
            return
        for index, table in enumerate(given):
            place = document.place((*path, index))
            unknown = [key for key in table if key not in _RULE_KEYS]
            for key in unknown:
                at = document.place((*path, index, key))
                self._faults.append(f"{at}: a rule has no {key!r}{_nearest(key, _RULE_KEYS)}")
            if unknown:
                continue
            self._origins[f"security.rules[{index}]"] = place
            try:
                yield rule_of(table)
            except Refused as refused:
                self._faults.extend(f"{place}: {fault}" for fault in refused.message.split("\n"))


class _Document:
    """A settings file: its values, and the places of its keys, looked up when there is something to say."""

    def __init__(self, file: Path) -> None:
        """Raises `Refused("bad-settings")` when it cannot be read as TOML."""
        self.directory = file.parent
        self._file = file
        try:
            content = read_own(file, FILE_SIZE_MAX)[1].decode("utf-8-sig")  # some editors begin a file with a mark
            self._text = _LINE_END.sub("\n", content)
            self.values: dict[str, object] = parsed_toml(self._text)
        except TooDeep as error:
            raise Refused("bad-settings", f"{file}:{error.place.line}:{error.place.column}: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise Refused("bad-settings", _toml_fault(file, self._text, str(error))) from None
        except UnicodeDecodeError as error:
            raise Refused("bad-settings", f"{file}: not UTF-8 at byte {error.start}") from None
        except ValueError as error:  # a number of very many digits
            raise Refused("bad-settings", f"{file}: {error}") from None
        except OSError as error:
            raise Refused("bad-settings", f"{file}: cannot be read: {error.strerror}") from None
        self._places: Mapping[tuple[str | int, ...], tuple[int, int]] | None = None

    def place(self, path: tuple[str | int, ...]) -> str:
        """`file:line:column` of the key at `path`, or of the nearest one above it."""
        if self._places is None:
            self._places = key_places(self._text)
        while path:
            if path in self._places:
                line, column = self._places[path]
                return f"{self._file}:{line}:{column}"
            path = path[:-1]
        return str(self._file)


def _toml_fault(file: Path, text: str, message: str) -> str:
    # The reader shows the path of a table as Python does.
    message = _TOML_PATH.sub(lambda found: f"[{'.'.join(_TOML_PART.findall(found[0]))}]", message)
    match = _TOML_PLACE.search(message)
    if match is None:
        return f"{file}: this is not TOML: {message}"
    line, column = (match[1], match[2]) if match[1] else (str(text.count("\n") + 1), "1")
    hint = _unquoted((text.splitlines() or [""])[min(int(line), text.count("\n") + 1) - 1 :])
    return f"{file}:{line}:{column}: {hint or f'this is not TOML: {message[: match.start()]}'}"


def _unquoted(lines: Sequence[str]) -> str:
    """What is to be said of a line that gives a name a value without quotes; "" where it does not."""
    match = _UNQUOTED.fullmatch(lines[0]) if lines else None
    if match is None:
        return ""
    name, value = match.groups()
    if value.lower() in ("true", "false"):
        return f"{value} is no value: write true or false in small letters"
    return f'{value} is no value: put text between quotes, {name} = "{value}"'


def _stream_section(streams: StreamsSection, given: dict[str, object]) -> StreamSection:
    inherited = {setting.field: getattr(streams, setting.field) for setting in STREAM_SETTINGS}
    return StreamSection(**(inherited | given))


def _is_link(variable: str, value: str) -> bool:
    """Whether Kubernetes or Docker has set this, for a service that is named like us: `VEREDUS_PORT=tcp://…`."""
    return _LINK.fullmatch(variable) is not None and (variable not in _BY_VARIABLE or "://" in value)


def _misspelt(variable: str) -> str:
    """The variable that this is nearly, "" where it is like none."""
    near = get_close_matches(variable.removeprefix(VARIABLE_PREFIX), _VARIABLE_ENDS, 1, MISSPELT_LIKENESS)
    return VARIABLE_PREFIX + near[0] if near else ""


def _nearest(name: str, names: Iterable[str]) -> str:
    known = list(names)
    near = [each for each in known if each.endswith(f".{name}")] or get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(known)}" if len(known) <= 12 else ""
