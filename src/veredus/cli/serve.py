"""`veredus serve`: a node, or an explanation of its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from veredus.cli.terminal import Naming, note, output_option, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from veredus.node.exposure import Fault
    from veredus.node.settings import NodeSettings
    from veredus.runtime.configuration import Configuration, Flag

_SHORT_FLAGS = {"directory": "node.directory", "tcp": "listen.tcp", "sync": "journal.sync", "log": "log.level"}
_FLAGS = {path: f"--{name}" for name, path in _SHORT_FLAGS.items()}
SWITCH_INTERVAL_S = 0.0001
"""How long the loop keeps Python's lock while the thread that writes the journal waits for it, which it does several
times a group. It is less than a turn of the loop takes: between two turns the loop lets go of the lock and takes it
again, and a thread that comes too late for it then begins its wait anew. Where a turn takes no longer than the wait,
the thread never asks for the lock: a loop that peers keep busy let each neighbour wait for 200 ms with 0.5 ms, and for
up to a second with Python's 5 ms.
"""


@click.command()
@click.option(
    "--settings",
    cls=Naming,
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="VEREDUS_SETTINGS",
    help="A TOML file of settings.",
)
@click.option("--directory", cls=Naming, metavar="DIR", help="The directory of the journal: node.directory.")
@click.option("--tcp", metavar="HOST:PORT", help="Where to listen: listen.tcp.")
@click.option(
    "--sync", metavar="MODE", help="When a publication is acknowledged, group, interval or none: journal.sync."
)
@click.option(
    "--log", metavar="LEVEL", help="The lowest level that is logged, debug, info, warning or error: log.level."
)
@click.option("--set", "others", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable.")
@click.option("--check", is_flag=True, help="Check and explain the settings without starting the node.")
@output_option
def serve(settings: Path | None, others: tuple[str, ...], check: bool, output: str, **short: str | None) -> None:
    """Run a node until Ctrl-C or SIGTERM. The node finishes the work in progress before it stops.

    A new node needs about 140 MB of disk for its journal.

    Settings come from defaults, a TOML file, VEREDUS_* variables and flags. Later ones override earlier ones.
    """
    from veredus.runtime.configuration import read_configuration

    given = click.get_current_context().get_parameter_source("output")
    if given is ParameterSource.COMMANDLINE and not check:
        raise click.UsageError("--output is for --check: a node that runs writes its log only")
    with naming_ways(_FLAGS):
        configuration = read_configuration(settings, os.environ, flags_of(others, short), _node_faults)
    if check:
        write_rows(explained(configuration), output, ("setting", "value", "default", "unit", "from", "meaning"))
        return
    from veredus.runtime.logs import set_up_logs

    say_ignored(configuration)
    log = configuration.settings.log
    set_up_logs(log.level, log.format)
    flags = flags_of(others, short)
    with naming_ways(_FLAGS):
        run_node(configuration.settings, lambda: read_configuration(settings, os.environ, flags).settings)


@contextmanager
def naming_ways(flags: Mapping[str, str]) -> Iterator[None]:
    """Let an error say, behind each setting that is to be changed, the flag and the variable that set it. `flags` are
    those of the command, by the path of what they set; `--set` sets all others.
    """
    from veredus.kernel.errors import VeredusError

    try:
        yield
    except VeredusError as error:
        raise type(error)(error.code, _with_ways(error.message, flags), **error.details) from None


def _with_ways(message: str, flags: Mapping[str, str]) -> str:
    from veredus.node.settings import SETTINGS

    for setting in SETTINGS:
        path = re.escape(setting.path)
        # What stands before a colon was given, and where is said; a default was not.
        named = rf"(?<![\w./]){path}(?: = \w+)?(?!\.?\w|: )|(?<=default: ){path}"
        named += "|name another directory" * (setting.path == "node.directory")
        ways = f" ({flags.get(setting.path, '--set')} or {setting.variable})"
        message = re.sub(named, rf"\g<0>{ways}", message, count=1)
    return message


def say_ignored(configuration: Configuration) -> None:
    """Print the variables that are no settings, as a Service named `veredus` injects them."""
    for ignored in configuration.notes:
        note(ignored)


def _node_faults(settings: NodeSettings) -> list[Fault]:
    """What is wrong for a node that starts here, its files first: other faults may follow from them."""
    from veredus.node.exposure import faults_of
    from veredus.runtime.files import file_faults

    return [*file_faults(settings), *faults_of(settings)]


def run_node(settings: NodeSettings, reread: Callable[[], NodeSettings]) -> None:
    """Run a node until it is interrupted; `reread` gives the settings of a reload."""
    import asyncio
    import gc
    import sys

    import uvloop

    from veredus.runtime.limits import descriptors_free
    from veredus.runtime.serve import Node
    from veredus.runtime.service_manager import VARIABLE, ServiceManager
    from veredus.runtime.stopping import ignore_signals

    async def live() -> None:
        node = Node(settings, reread, ServiceManager(os.environ.get(VARIABLE, "")))
        # What recovery makes stays, and what comes makes no cycles: to look for garbage would take two thirds of a
        # start with many streams, and later a fifth.
        gc.disable()
        await node.start(takes_signals=True)
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        gc.enable()
        await node.run()
        ignore_signals()

    descriptors_free()  # a loop that cannot open its own files says less of what is missing
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())


def explained(configuration: Configuration) -> list[dict[str, object]]:
    """Every effective setting: its value, its default, its unit, where it came from, and what it means."""
    from veredus.node.settings import SETTINGS, STREAM_SETTINGS
    from veredus.node.specs import Unit

    rows: list[dict[str, object]] = []
    settings = configuration.settings
    streams = [(f"stream.{name}", section, STREAM_SETTINGS) for name, section in settings.stream.items()]
    parts = [(None, None, SETTINGS), *streams]
    for prefix, section, table in parts:
        for setting in table:
            holder = getattr(settings, setting.section) if section is None else section
            spec = setting.spec
            rows.append(
                {
                    "setting": setting.path if prefix is None else f"{prefix}.{setting.name}",
                    "value": setting.format(getattr(holder, setting.field)),
                    "default": setting.format(setting.default),
                    "unit": f"one of {', '.join(spec.choices)}" if spec.unit is Unit.CHOICE else spec.unit.value,
                    "from": configuration.origin(setting.path if prefix is None else prefix),
                    "meaning": spec.meaning,
                }
            )
    rows.extend(
        {
            "setting": f"security.rules[{index}]",
            "value": str(rule),
            "default": "",
            "unit": "rule",
            "from": configuration.origin(f"security.rules[{index}]"),
            "meaning": "The first rule that matches a request decides it",
        }
        for index, rule in enumerate(settings.security.rules)
    )
    return rows


def flags_of(others: tuple[str, ...], short: dict[str, str | None]) -> list[Flag]:
    """The settings that were given on the command line. Raises `click.BadParameter`."""
    from veredus.runtime.configuration import Flag

    flags = [Flag(_SHORT_FLAGS[name], text, f"--{name}") for name, text in short.items() if text is not None]
    for other in others:
        path, equals, text = other.partition("=")
        if not equals:
            raise click.BadParameter(f"{other!r} is not SECTION.NAME=VALUE", param_hint="--set")
        flags.append(Flag(path.strip(), text, "--set"))
    return flags
