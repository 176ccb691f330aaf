"""`veredus topics serve` and `veredus topics show`: the servers of a topic service, and what they have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from veredus.cli.link import Target, node_options
from veredus.cli.terminal import output_option, write_rows

if TYPE_CHECKING:
    from veredus.client.blocking import Node
    from veredus.runtime.configuration import Flag

TOPIC_COLUMNS = ("server", "topic", "messages", "subscribers", "waiting")
SUBSCRIBER_COLUMNS = ("server", "topic", "subscriber", "waiting", "received_to", "since")
MERGE_COLUMNS = ("server", "topic", "first", "count", "giver")


@click.command()
@click.argument("id", metavar="ID")
@click.option("--set", "others", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable.")
@click.pass_obj
def serve(given: Any, id: str, others: tuple[str, ...]) -> None:  # noqa: A002  # as the page calls it
    """Run a server of topics until it is interrupted. ID is the address at which others reach it, HOST:PORT.

    It is a node as `veredus serve` runs one, in the directory server_ID unless node.directory says otherwise; its
    native door takes any free port, and its other doors are closed, unless they are set.
    """
    from veredus.cli.serve import flags_of, run_node
    from veredus.runtime.configuration import read_configuration
    from veredus.runtime.logs import set_up_logs

    flags = flags_of(others, {})
    set_here = read_configuration(given.config, os.environ, flags)
    settings = read_configuration(given.config, os.environ, [*_defaults(id, set_here.origin), *flags]).settings
    set_up_logs(settings.log.level, settings.log.format)
    run_node(settings)


def _defaults(server_id: str, origin: Any) -> list[Flag]:
    """What a server is unless somebody said otherwise."""
    from veredus.runtime.configuration import DEFAULT, Flag

    wanted = {
        "node.directory": f"server_{server_id.replace(':', '_')}",
        "listen.tcp": "127.0.0.1:0",
        "listen.zeromq": "",
        "listen.metrics": "",
    }
    own = "topics.listen" if origin("topics.listen") == DEFAULT else "topics.id"
    return [Flag(path, text, "ID") for path, text in wanted.items() if origin(path) == DEFAULT] + [
        Flag(own, server_id, "ID")
    ]


@click.command()
@click.option("--subscribers", "form", flag_value="subscribers", help="A row for each subscriber of each topic.")
@click.option("--merges", "form", flag_value="merges", help="A row for each topic that came from another server.")
@output_option
@node_options
def show(form: str | None, target: Target, output: str) -> None:
    """Show what the servers have: topics, their subscribers, and what each has yet to receive.

    --address names the native door of a server; give it once for each of them.
    """
    rows_of, columns = {
        "subscribers": (_subscribers, SUBSCRIBER_COLUMNS),
        "merges": (_merges, MERGE_COLUMNS),
    }.get(form or "", (_topics, TOPIC_COLUMNS))
    rows: list[dict[str, object]] = []
    for address in target.addresses:
        with target._replace(addresses=(address,)).connect() as node:
            rows += [{"server": address, **row} for row in rows_of(node)]
    write_rows(rows, output, columns)


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
    from veredus.protocols.topics.getting import SUBSCRIPTION

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
    from veredus.protocols.topics.keeping import SINK

    return [
        {"topic": topic, "first": first, "count": count, "giver": sink["sink"].removeprefix(SINK)[:16]}
        for sink in node.sinks.list()
        if sink["sink"].startswith(SINK)
        for topic, first, count in sink["streams"]
    ]
