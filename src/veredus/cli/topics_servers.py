"""`veredus topics serve` and `veredus topics show`: the servers of a topic service, and what they have."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from veredus.cli.link import DEFAULT_ADDRESS, Target, node_options
from veredus.cli.terminal import note, output_option, write_rows

if TYPE_CHECKING:
    from veredus.client.blocking import Node
    from veredus.node.settings import NodeSettings
    from veredus.runtime.configuration import Configuration, Flag

NATIVE_SOCKET = "native.socket"
"""Where in its directory a server listens for who looks at it."""
TOPIC_COLUMNS = ("server", "topic", "messages", "subscribers", "waiting")
SUBSCRIBER_COLUMNS = ("server", "topic", "subscriber", "waiting", "received_to", "since")
_ADDRESSES_HELP = (
    "The address of a server's native listener; repeatable, each of them is asked.  [default: the servers on this"
    f" machine, or {DEFAULT_ADDRESS} if topics.servers is empty]"
)
_FLAGS = {"node.directory": "--directory", "topics.proxies": "--proxy"}
MERGE_COLUMNS = ("server", "topic", "first", "count", "giver")


@click.command(short_help="Run a server of topics.")
@click.argument("id", metavar="ID")
@click.option("--set", "others", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable.")
@click.pass_obj
def serve(given: Any, id: str, others: tuple[str, ...]) -> None:  # noqa: A002  # as the page calls it
    """Run a server of topics until it is interrupted. ID is the address at which others reach it, HOST:PORT.

    The server is a node, like that of `veredus serve`. Its directory is server_ID, with _ for each colon, unless
    --directory or node.directory is given. Its native listener takes any free port. Its other listeners are closed
    unless they are set.
    """
    from veredus.cli.serve import flags_of, naming_ways, run_node, say_ignored
    from veredus.runtime.configuration import read_configuration
    from veredus.runtime.logs import set_up_logs

    given.check_unused("serve takes the id of the server as its argument", "--id")
    flags = [*given.proxy_flags(), *flags_of(others, {"directory": given.directory})]

    def read() -> NodeSettings:
        here = read_configuration(given.config, os.environ, flags)
        return read_configuration(given.config, os.environ, [*_defaults(id, here), *flags]).settings

    with naming_ways(_FLAGS):
        set_here = read_configuration(given.config, os.environ, flags)
        settings = read()
    say_ignored(set_here)
    set_up_logs(settings.log.level, settings.log.format)
    with naming_ways(_FLAGS):
        run_node(settings, read)


def _defaults(server_id: str, set_here: Configuration) -> list[Flag]:
    """What a server is unless somebody said otherwise."""
    from veredus.runtime.configuration import DEFAULT, Flag

    origin, settings = set_here.origin, set_here.settings
    directory = _directory(server_id) if origin("node.directory") == DEFAULT else settings.node.directory
    wanted = {
        "node.directory": directory,
        "listen.unix": f"{directory}/{NATIVE_SOCKET}",
        "listen.tcp": "127.0.0.1:0",
        "listen.zeromq": "",
        "listen.metrics": "",
        "streams.retention_age": f"{settings.topics.retention_age_ns // 1_000_000}ms",
    }
    own = "topics.listen" if origin("topics.listen") == DEFAULT else "topics.id"
    return [Flag(path, text, "ID") for path, text in wanted.items() if origin(path) == DEFAULT] + [
        Flag(own, server_id, "ID")
    ]


@click.command(short_help="Show the topics of the servers.")
@click.option("--subscribers", "form", flag_value="subscribers", help="A row for each subscriber of each topic.")
@click.option("--merges", "form", flag_value="merges", help="A row for each topic that came from another server.")
@output_option
@partial(node_options, addresses_help=_ADDRESSES_HELP)
@click.pass_obj
def show(given: Any, form: str | None, target: Target, output: str) -> None:
    """Show the topics of the servers, their subscribers, and how many messages wait for each subscriber.

    The command finds servers of topics.servers on this machine by their directories, server_ID. For another server,
    give the address of its native listener with --address.
    """
    given.check_unused("show asks servers; name them with -a, or in the topics.servers of --config")
    rows_of, columns = {
        "subscribers": (_subscribers, SUBSCRIBER_COLUMNS),
        "merges": (_merges, MERGE_COLUMNS),
    }.get(form or "", (_topics, TOPIC_COLUMNS))
    rows: list[dict[str, object]] = []
    for server, address in _servers(given, target).items():
        with target._replace(addresses=(address,)).connect() as node:
            rows += [{"server": server, **row} for row in rows_of(node)]
    write_rows(rows, output, columns)


def _servers(given: Any, target: Target) -> dict[str, str]:
    """Where each server is asked, by what it is called: those that were named, or else those that are configured."""
    servers = given.section().servers
    context = click.get_current_context()
    is_named = context.get_parameter_source("addresses") not in (None, ParameterSource.DEFAULT)
    if is_named or not servers:
        return {address: address for address in target.addresses}
    sockets = {server: Path(_directory(server), NATIVE_SOCKET).absolute() for server in servers}
    away = [server for server, path in sockets.items() if not path.exists()]
    if away:
        listed = ", ".join(away)
        note(f"not on this machine, or not in this directory: {listed}; give their native listeners with -a")
    return {server: f"unix://{path}" for server, path in sockets.items() if server not in away}


def _directory(server_id: str) -> str:
    return f"server_{server_id.replace(':', '_')}"


def _topics(node: Node) -> list[dict[str, object]]:
    waiting: dict[str, list[int]] = {}
    for one in _subscribers(node):
        waiting.setdefault(str(one["topic"]), []).append(int(str(one["waiting"])))
    return [
        {
            "topic": stream["name"],
            "messages": stream["head"] - stream["floor"] + 1,
            "subscribers": len(waiting.get(stream["name"], ())),
            "waiting": sum(waiting.get(stream["name"], ())),
        }
        for stream in node.streams.list()
    ]


def _subscribers(node: Node) -> list[dict[str, object]]:
    from veredus.cli.terminal import time_text
    from veredus.protocols.topics.ids import SUBSCRIPTION

    return [
        {
            "topic": one["stream"],
            "subscriber": one["subscriber"],
            "waiting": one["lag"] - sum(last - first + 1 for first, last in one["settled"]),
            "received_to": one["floor"],
            "since": time_text(one["opened_us"]),
        }
        for one in node.subscriptions.list(name=SUBSCRIPTION)
    ]


def _merges(node: Node) -> list[dict[str, object]]:
    from veredus.protocols.topics.ids import SINK

    return [
        {"topic": topic, "first": first, "count": count, "giver": sink["sink"].removeprefix(SINK)[:16]}
        for sink in node.sinks.list()
        if sink["sink"].startswith(SINK)
        for topic, first, count in sink["streams"]
    ]
