"""`veredus topics`: a client of the topic service, one operation a run; its directory holds what it must remember."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from veredus.cli.terminal import CommandGroup, Naming, note, write_octets
from veredus.cli.topics_servers import serve, show
from veredus.kernel.words import were

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veredus.cli.interrupts import Interrupts
    from veredus.node.settings import TopicsSection
    from veredus.runtime.configuration import Flag
    from veredus.topics import Client, Message

RAW, LINES, PREFIXED = "raw", "lines", "prefixed"
FORMATS = (RAW, LINES, PREFIXED)
_IN_DOUBT = ("no-proxy", "server-unavailable", "server-failed", "bad-answer")
"""With these it is not known whether a message was put."""
_AT_ONCE_MAX = 1_000
_NO_PROXY_S = 0.5
"""How long to wait before a proxy that was not there is asked again."""


class _Given(NamedTuple):
    """What stands before the operation on the command line."""

    config: Path | None
    id: str | None
    proxies: tuple[str, ...]
    directory: str | None

    def section(self) -> TopicsSection:
        """The settings of the topic service. Raises `Refused("bad-settings")`."""
        from veredus.runtime.configuration import Flag, read_configuration

        flags = self.proxy_flags()
        if self.directory is not None:
            flags.append(Flag("topics.directory", self.directory, "--directory"))
        return read_configuration(self.config, os.environ, flags).settings.topics

    def proxy_flags(self) -> list[Flag]:
        """The proxies that are given, as settings."""
        from veredus.runtime.configuration import Flag

        return [Flag("topics.proxies", ",".join(self.proxies), "--proxy")] if self.proxies else []

    def check_unused(self, why: str, *options: str) -> None:
        """Raise `click.UsageError` for options that have no effect on an operation, all of a client's unless named."""
        given = {"--id": self.id, "--proxy": self.proxies, "--directory": self.directory}
        for option in options or given:
            if given[option]:
                raise click.UsageError(f"{option} has no effect here: {why}")

    def client(self) -> Client:
        """The client, not open yet. Raises `click.UsageError` where it has no id."""
        from veredus.topics import Client

        if self.id is None:
            raise click.UsageError("the client has no id: give --id before the operation")
        from veredus.runtime.topics_credentials import read_credentials

        section = self.section()
        shown = read_credentials(section)
        return Client(
            self.id,
            proxies=section.proxies,
            directory=section.directory,
            answer_s=section.answer_ns / 1e9,
            retries_max=section.retries_max,
            body_size_max=section.body_size_max,
            token=shown.token,
            server_key=shown.server_key,
            secret_key=shown.secret_key,
        )


@click.group(cls=CommandGroup)
@click.option(
    "--config",
    cls=Naming,
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="VEREDUS_SETTINGS",
    help="A TOML file of settings, with a section [topics].",
)
@click.option(
    "--id",
    "client_id",
    cls=Naming,
    help="The client's id. It never changes, and only one process may use it at a time.",
)
@click.option(
    "--proxy", "proxies", cls=Naming, multiple=True, metavar="HOST:PORT", help="Try this proxy; repeatable, in order."
)
@click.option(
    "--directory",
    cls=Naming,
    help="Where clients store their last put and get: topics.directory; the journal of serve: node.directory.",
)
@click.pass_context
def topics(
    context: click.Context, config: Path | None, client_id: str | None, proxies: tuple[str, ...], directory: str | None
) -> None:
    """Subscribe, unsubscribe, get and put, exactly once, through the proxies of a topic service.

    After a kill or an error, run the same command again: retrying is idempotent. One case remains: a put that is
    killed after it was acknowledged, and run again, is another put, unless it has a --key.
    """
    context.obj = _Given(config, client_id, proxies, directory)


topics.add_command(serve)
topics.add_command(show)


@topics.command("subscribe", short_help="Subscribe this client to TOPIC.")
@click.argument("topic")
@click.pass_obj
def subscribe(given: _Given, topic: str) -> None:
    """Subscribe to TOPIC: the client can get every message that is put from now on."""
    from veredus.cli.interrupts import Interrupts

    with Interrupts(), given.client() as client:
        client.subscribe(topic)


@topics.command("unsubscribe", short_help="Unsubscribe this client from TOPIC.")
@click.argument("topic")
@click.pass_obj
def unsubscribe(given: _Given, topic: str) -> None:
    """Unsubscribe from TOPIC: the client gets no more messages of it, not even older ones."""
    from veredus.cli.interrupts import Interrupts

    with Interrupts(), given.client() as client:
        client.unsubscribe(topic)


@topics.command("forget", short_help="Forget the last message that was got.")
@click.argument("topic")
@click.pass_obj
def forget(given: _Given, topic: str) -> None:
    """Forget the last message of TOPIC that this client got. Use it if the server of that message is lost for good.

    Other servers do not know that message and refuse the client. After this command, the client can get the messages
    that wait there. No message is lost.
    """
    from veredus.cli.interrupts import Interrupts

    with Interrupts(), given.client() as client:
        client.forget_last(topic)


class _Message(click.File):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As any file; what stands where `echo` has its text is told where messages come from."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            advice = "to put a text, write it to standard input: echo hello | veredus topics put TOPIC"
            raise click.BadParameter(f"{error.message}; {advice}", ctx, param) from None


@topics.command("put", short_help="Put a message, or lines, into TOPIC.")
@click.argument("topic")
@click.argument("file", type=_Message("rb"), default="-")
@click.option("--lines", "is_lines", is_flag=True, help="Put each line as a message of its own.")
@click.option("--key", help="What names this put: with the key of the last put on TOPIC, it is always a retry.")
@click.pass_obj
def put(given: _Given, topic: str, file: BinaryIO, is_lines: bool, key: str | None) -> None:
    """Put the contents of FILE, or of standard input, into TOPIC: one message.

    If it fails, run it again with the same content: retrying is idempotent. If it may be killed, give it a --key of
    its own too; a key is for one content. With --lines, one put takes up to topics.body_size_max of lines, either all
    of them or none. A longer input needs several puts; the command reports each of them, and after a failure the line
    from which to continue.
    """
    from veredus.cli.exits import Ended, Exit
    from veredus.cli.interrupts import Interrupts
    from veredus.kernel.errors import Misuse, Unavailable

    if key == "":
        raise click.UsageError("--key is empty: give it at least one character, or leave it out")
    if key is not None and is_lines:
        raise click.UsageError("--key is for one message: use it without --lines")
    size_max = given.section().body_size_max
    with Interrupts() as interrupts:
        try:
            with given.client() as client:
                if is_lines:
                    _put_lines(client, topic, file, size_max, interrupts)
                    return
                with interrupts.waiting():
                    body = file.read(size_max + 1)
                if len(body) > size_max:
                    raise Misuse("too-large", f"{file.name} has more than {size_max} bytes (topics.body_size_max)")
                client.put(topic, body, key=os.fsencode(key or ""))
        except Unavailable as error:
            if error.code not in _IN_DOUBT:
                raise
            note(f"veredus: {error.message} [{error.code}]")
            raise Ended(Exit.IN_DOUBT) from None


def _put_lines(client: Client, topic: str, file: BinaryIO, size_max: int, interrupts: Interrupts) -> None:
    """Put a message for each line, as many at once as fit; say how far it came where one put does not hold them."""
    done_count = put_count = 0
    bundles = _bundles(file, size_max)
    try:
        while True:
            with interrupts.waiting():
                lines = next(bundles, None)
            if lines is None:
                if not done_count:
                    note("there are no lines in the input: nothing was put")
                break
            client.put_many(topic, lines)
            done_count, put_count = done_count + len(lines), put_count + 1
            if put_count > 1:
                note(f"{done_count} lines were put, in {put_count} puts")
    except BaseException:
        if done_count:
            done = "the first line" if done_count == 1 else f"the first {done_count} lines"
            note(f"{done} {were(done_count)} put: retry with only the lines from line {done_count + 1} on")
        raise


def _bundles(file: BinaryIO, size_max: int) -> Iterator[list[bytes]]:
    """The lines of a file, in bundles that can each be put at once. Raises `Misuse("too-large")`."""
    from veredus.kernel.errors import Misuse
    from veredus.protocols.topics.many import COUNT_MAX, LENGTH_SIZE

    lines: list[bytes] = []
    size = LENGTH_SIZE
    for number, read in enumerate(file, 1):
        line = read.removesuffix(b"\n")
        own_size = LENGTH_SIZE + len(line)
        if LENGTH_SIZE + own_size > size_max:
            said = f"line {number} of {file.name} has {len(line)} bytes, too many for {size_max} (topics.body_size_max)"
            raise Misuse("too-large", said)
        if lines and (size + own_size > size_max or len(lines) == COUNT_MAX):
            yield lines
            lines, size = [], LENGTH_SIZE
        lines.append(line)
        size += own_size
    if lines:
        yield lines


@topics.command("get", short_help="Write the next messages of TOPIC.")
@click.argument("topic")
@click.option("--wait", default="0s", show_default=True, help="How long to wait if there is no message yet.")
@click.option("-n", "--count", "wanted", type=click.IntRange(1), show_default="1", help="Get this many messages.")
@click.option("--loop", is_flag=True, help="Get messages without end; with --wait, until none arrives for this long.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=RAW,
    show_default=True,
    help="raw: bodies only; lines: a line break after each; prefixed: 4 bytes of size before each.",
)
@click.pass_obj
def get(given: _Given, topic: str, wait: str, wanted: int | None, loop: bool, form: str) -> None:
    """Write the body of the next message of TOPIC to standard output, and its id to standard error.

    Each message is written once, except if the command is killed after it wrote a message and before it stored that it
    did: then that message comes again, with the same id. To have an effect once, store the id together with the effect.
    If there is no message, the exit code is 1, except with --loop. If messages were deleted before they could be
    delivered, it is 7, and the next call continues behind them.
    """
    from math import inf

    from veredus.cli.exits import Ended, Exit
    from veredus.cli.interrupts import Interrupts
    from veredus.cli.link import seconds_of
    from veredus.kernel.errors import Unavailable

    if loop and wanted is not None:
        raise click.UsageError("use either --count or --loop")
    count, wait_s = wanted or 1, seconds_of(wait, "--wait")
    if loop and not wait_s:
        wait_s = inf
    got_count, is_gap = 0, False
    with Interrupts(watches_output=True) as interrupts, given.client() as client:
        while loop or got_count < count:
            try:
                with interrupts.waiting():
                    messages = _next(client, topic, _AT_ONCE_MAX if loop else count - got_count, wait_s)
            except Unavailable as error:
                if error.code != "messages-gone":
                    raise
                # Whoever has written this is not told of it again.
                note(f"veredus: {error.message} [{error.code}]")
                is_gap = True
                break
            if not messages:
                break
            for message in messages:
                _write(message.body, form)
                note(message.id)
                # Only what was written is done with: an interrupted run leaves the message to the next one.
                client.done(message)
            got_count += len(messages)
    if is_gap:
        raise Ended(Exit.GAP)
    if not loop and got_count < count:
        note(f"no messages on {topic}")
        raise Ended(Exit.ERROR)


def _next(client: Client, topic: str, count_max: int, wait_s: float) -> list[Message]:
    """Messages that come next, at most so many, also from a proxy that comes up before `wait_s` is over.

    A single one is asked for as the page has it.
    """
    from veredus.kernel.errors import Unavailable

    end_s = time.monotonic() + wait_s
    while True:
        try:
            left_s = max(0.0, end_s - time.monotonic())
            if count_max > 1:
                return client.get_many(topic, min(count_max, _AT_ONCE_MAX), wait_s=left_s)
            message = client.get(topic, wait_s=left_s)
        except Unavailable as error:
            if error.code != "no-proxy" or time.monotonic() + _NO_PROXY_S > end_s:
                raise
            time.sleep(_NO_PROXY_S)
        else:
            return [] if message is None else [message]


def _write(body: bytes, form: str) -> None:
    if form != RAW:
        from veredus.cli.written import write_lines, write_prefixed

        body = write_lines((), [body]) if form == LINES else write_prefixed([body])
    write_octets(body)
