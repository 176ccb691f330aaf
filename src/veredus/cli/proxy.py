"""`veredus proxy`: a proxy of the topic service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veredus.cli.terminal import Naming
from veredus.kernel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from veredus.node.settings import NodeSettings, TopicsSection
    from veredus.protocols.topics.proxy import ProxySettings
    from veredus.runtime.configuration import Configuration


_FLAGS = {"topics.listen": "--listen"}


@click.command()
@click.option(
    "--config",
    cls=Naming,
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="VEREDUS_SETTINGS",
    help="A TOML file with a [topics] section.",
)
@click.option("--listen", cls=Naming, metavar="HOST:PORT", help="The address to listen on: topics.listen.")
@click.option("--set", "others", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable.")
def proxy(config: Path | None, listen: str | None, others: tuple[str, ...]) -> None:
    """Run a proxy of the topic service until it is interrupted.

    After Ctrl-C or SIGTERM, the proxy answers the open requests and stops. A proxy stores nothing: the servers announce
    their topics to it.
    """
    from veredus.cli.serve import flags_of, naming_ways, say_ignored
    from veredus.runtime.configuration import Flag, read_configuration
    from veredus.runtime.logs import set_up_logs

    flags = [] if listen is None else [Flag("topics.listen", listen, "--listen")]
    flags += flags_of(others, {})

    def read() -> Configuration:
        return read_configuration(config, os.environ, flags)

    with naming_ways(_FLAGS):
        configuration = read()
        settings = _placed(configuration.settings)
    say_ignored(configuration)
    set_up_logs(settings.log.level, settings.log.format)
    with naming_ways(_FLAGS):
        _run(settings, lambda: _placed(read().settings))


def _placed(settings: NodeSettings) -> NodeSettings:
    """The settings with the address at which the proxy listens. Raises `Refused("bad-settings")`."""
    from msgspec.structs import replace

    from veredus.kernel.addresses import split_address
    from veredus.node.exposure import check_settings, is_loopback
    from veredus.runtime.files import check_files

    topics = settings.topics
    if not topics.listen:
        if len(topics.proxies) != 1:
            which = f"one of {', '.join(topics.proxies)}" if topics.proxies else "there are none in topics.proxies"
            said = f"topics.listen: it is not known which proxy this is: give --listen, {which}"
            raise Refused("bad-settings", said)
        settings = replace(settings, topics=replace(topics, listen=topics.proxies[0]))
        check_settings(settings)
    address = settings.topics.listen
    if not topics.servers and not is_loopback(split_address(address)[0]):
        said = f"{address} is open to other machines, and any of them could be given topics"
        raise Refused("bad-settings", f"topics.listen: {said}: list the servers by id in topics.servers")
    check_files(settings)
    return settings


def proxy_settings(topics: TopicsSection, topics_max: int) -> ProxySettings:
    """How a proxy of this service is, whose servers have at most `topics_max` topics each."""
    from veredus.protocols.topics.proxy import ProxySettings

    return ProxySettings(
        answer_ns=topics.answer_ns,
        retries_max=topics.retries_max,
        # Each server has said once what it claims, also one that did so just before the proxy began.
        learning_ns=topics.period_ns * 6 // 5,
        servers=topics.servers,
        requests_max=topics.requests_max,
        body_size_max=topics.body_size_max,
        topics_max=topics_max,
    )


def _run(settings: NodeSettings, reread: Callable[[], NodeSettings]) -> None:
    import asyncio
    import gc

    import uvloop

    from veredus.runtime.limits import admission_limits_of
    from veredus.runtime.service_manager import VARIABLE, ServiceManager
    from veredus.runtime.stopping import ignore_signals
    from veredus.runtime.topics_limits import topics_limits_of
    from veredus.runtime.topics_proxy import TopicsProxy

    limits = topics_limits_of(settings, admission_limits_of(settings))

    async def live() -> None:
        manager = ServiceManager(os.environ.get(VARIABLE, ""))
        running = TopicsProxy(
            proxy_settings(settings.topics, settings.limits.streams_max),
            settings.topics.listen,
            limits,
            settings,
            reread,
            manager,
        )
        # As for a node: what is there now stays, and what comes makes no cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        await running.run()
        ignore_signals()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())
