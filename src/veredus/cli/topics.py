"""`veredus topics`: a client of the topic service, one operation a run; what it must remember lies in its directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from veredus.cli.terminal import note
from veredus.cli.topics_servers import serve, show

if TYPE_CHECKING:
    from veredus.node.settings import TopicsSection
    from veredus.topics import Client, Message

RAW, LINES, PREFIXED = "raw", "lines", "prefixed"
FORMATS = (RAW, LINES, PREFIXED)
_IN_DOUBT = ("no-proxy", "server-unavailable", "server-failed")
"""With these nobody knows whether a message was put."""
_AT_ONCE_MAX = 1_000


class _Given(NamedTuple):
    """What stands before the operation on the command line."""

    config: Path | None
    id: str | None
    proxies: tuple[str, ...]
    directory: str | None

    def section(self) -> TopicsSection:
        """The settings of the topic service. Raises `Refused("bad-settings")`."""
        from veredus.runtime.configuration import Flag, read_configuration

        flags = [Flag("topics.proxies", ",".join(self.proxies), "--proxy")] if self.proxies else []
        if self.directory is not None:
            flags.append(Flag("topics.directory", self.directory, "--directory"))
        return read_configuration(self.config, os.environ, flags).settings.topics

    def client(self) -> Client:
        """The client, not open yet. Raises `click.UsageError` where it has no id."""
        from veredus.topics import Client

        if self.id is None:
            raise click.UsageError("who asks? Name the client with --id, before the operation")
        section = self.section()
        return Client(
            self.id,
            proxies=section.proxies,
            directory=section.directory,
            answer_s=section.answer_ns / 1e9,
            retries_max=section.retries_max,
            body_size_max=section.body_size_max,
        )


@click.group()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="VEREDUS_SETTINGS",
    help="A TOML file of settings, with a section [topics].",
)
@click.option("--id", "client_id", help="The client's id: one process at a time, the same for all of its life.")
@click.option("--proxy", "proxies", multiple=True, metavar="HOST:PORT", help="Try this proxy; repeatable, in order.")
@click.option("--directory", help="Where clients remember what they put and got last: topics.directory.")
@click.pass_context
def topics(
    context: click.Context, config: Path | None, client_id: str | None, proxies: tuple[str, ...], directory: str | None
) -> None:
    """Subscribe, unsubscribe, get and put, exactly once, through the proxies of a topic service.

    A run that was killed, or ended with an error, may be repeated: nothing is put or got twice.
    """
    context.obj = _Given(config, client_id, proxies, directory)


topics.add_command(serve)
topics.add_command(show)


@topics.command("subscribe")
@click.argument("topic")
@click.pass_obj
def subscribe(given: _Given, topic: str) -> None:
    """Be subscribed to TOPIC: what is put from now on can be got."""
    from veredus.cli.interrupts import Interrupts

    with Interrupts(), given.client() as client:
        client.subscribe(topic)


@topics.command("unsubscribe")
@click.argument("topic")
@click.pass_obj
def unsubscribe(given: _Given, topic: str) -> None:
    """Be subscribed to TOPIC no longer: nothing of it is got any more, also not what was put before."""
    from veredus.cli.interrupts import Interrupts

    with Interrupts(), given.client() as client:
        client.unsubscribe(topic)


@topics.command("put")
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--lines", "is_lines", is_flag=True, help="Put a message for each line: all of them, or none.")
@click.pass_obj
def put(given: _Given, topic: str, file: BinaryIO, is_lines: bool) -> None:
    """Put the contents of FILE, or of standard input, into TOPIC: one message.

    Where it fails, the same put again is that put, tried once more: the message is not put twice.
    """
    from veredus.cli.exits import Ended, Exit
    from veredus.cli.interrupts import Interrupts
    from veredus.kernel.errors import Misuse, Unavailable

    size_max = given.section().body_size_max
    with Interrupts() as interrupts:
        with interrupts.waiting():
            body = file.read(size_max + 1)
        if len(body) > size_max:
            raise Misuse("too-large", f"{file.name} has more than {size_max} bytes (topics.body_size_max)")
        try:
            with given.client() as client:
                if is_lines:
                    client.put_many(topic, body.removesuffix(b"\n").split(b"\n") if body else [])
                else:
                    client.put(topic, body)
        except Unavailable as error:
            if error.code not in _IN_DOUBT:
                raise
            note(f"veredus: {error.message} [{error.code}]")
            raise Ended(Exit.IN_DOUBT) from None


@topics.command("get")
@click.argument("topic")
@click.option("--wait", default="0s", show_default=True, help="How long to wait for a message, if there is none.")
@click.option("-n", "--count", type=click.IntRange(1), default=1, show_default=True, help="Get so many messages.")
@click.option("--loop", is_flag=True, help="Get messages for ever, or with --wait until none comes for so long.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=RAW,
    show_default=True,
    help="Bodies as they are, each with a line break behind it, or with its size in 4 bytes before it.",
)
@click.pass_obj
def get(given: _Given, topic: str, wait: str, count: int, loop: bool, form: str) -> None:
    """Write the body of the next message of TOPIC to standard output, and its id to standard error.

    What was written counts as got and never comes again. Without a message the exit code is 1, but for --loop.
    """
    from math import inf

    from veredus.cli.exits import Ended, Exit
    from veredus.cli.interrupts import Interrupts
    from veredus.cli.link import seconds_of

    wait_s = seconds_of(wait, "--wait")
    if loop and not wait_s:
        wait_s = inf
    got_count = 0
    with Interrupts() as interrupts, given.client() as client:
        while loop or got_count < count:
            with interrupts.waiting():
                messages = _next(client, topic, _AT_ONCE_MAX if loop else count - got_count, wait_s)
            if not messages:
                break
            for message in messages:
                _write(message.body, form)
                note(message.id)
                # Only what was written is done with: an interrupted run leaves the message to the next one.
                client.done(message)
            got_count += len(messages)
    if not loop and got_count < count:
        note(f"no messages on {topic}")
        raise Ended(Exit.ERROR)


def _next(client: Client, topic: str, count_max: int, wait_s: float) -> list[Message]:
    """Messages that come next, at most so many. A single one is asked for as the page has it."""
    if count_max > 1:
        return client.get_many(topic, min(count_max, _AT_ONCE_MAX), wait_s=wait_s)
    message = client.get(topic, wait_s=wait_s)
    return [] if message is None else [message]


def _write(body: bytes, form: str) -> None:
    if form != RAW:
        from veredus.cli.records import write_lines, write_prefixed

        body = write_lines((), [body]) if form == LINES else write_prefixed([body])
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
