"""`veredus sub`: what a stream holds and will hold, to standard output."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from veredus.cli.interrupts import Interrupts
from veredus.cli.link import Target, node_options
from veredus.cli.terminal import Naming, note, write_octets
from veredus.kernel.words import are, spanned

if TYPE_CHECKING:
    from veredus.client.blocking import Node
    from veredus.client.ends import Subscription
    from veredus.client.publication import Publication
    from veredus.client.reception import Message, Reception
    from veredus.client.wanting import Gap
    from veredus.streams.exchange import Start

_MULTICAST_ONLY = (
    "--multicast goes with --from, --count, --key, --format and --key-separator only: it has no cursor, no attributes"
    " and no end"
)
FORMATS = ("lines", "prefixed", "json")


@click.command()
@click.argument("stream")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default="start",
    show_default=True,
    help="Where to begin: start, head (after the newest), tail:COUNT, a sequence, a time (2013-07-01T00:00:00Z), or"
    " after:SOURCE (after its last publication).",
)
@click.option("--count", type=click.IntRange(1), help="Print this many publications, then stop.")
@click.option(
    "--follow/--no-follow", default=True, help="Wait for new publications, or stop after those that exist now."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PATTERN",
    help="Only publications whose key matches one of these; repeatable.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help="Only publications for which this condition is true: \"quote > 30 AND carrier = 'UA'\".",
)
@click.option(
    "--subscriber",
    cls=Naming,
    metavar="NAME",
    default="",
    help="A durable name: the node stores its position, and the next run continues there.",
)
@click.option(
    "--name",
    cls=Naming,
    default="",
    help="The name of the subscription, if the subscriber has several.  [default: main]",
)
@click.option(
    "--attempts-max", type=click.IntRange(1), help="After this many attempts, move a publication to the dead letters."
)
@click.option("--park-to", cls=Naming, default="", metavar="STREAM", help="The stream for dead letters; it must exist.")
@click.option(
    "--multicast",
    "group",
    cls=Naming,
    default="",
    metavar="GROUP",
    help="Receive new publications from this multicast group, such as 239.195.0.1:7074, and all others from the node.",
)
@click.option(
    "--interface",
    cls=Naming,
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The IPv4 address of the interface that joins the multicast group.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="lines", show_default=True, help="The form of the output."
)
@click.option("--key-separator", default="", help="In lines, print the key, this text ('\\t'), then the body.")
@node_options
def subscribe(
    stream: str,
    start: str,
    count: int | None,
    follow: bool,
    keys: tuple[str, ...],
    where: str | None,
    subscriber: str,
    name: str,
    attempts_max: int | None,
    park_to: str,
    group: str,
    interface: str,
    form: str,
    key_separator: str,
    target: Target,
) -> None:
    """Print the publications of STREAM: as lines, length-prefixed (4 bytes, big-endian) or JSON lines.

    With --subscriber, the command settles what it has written and flushed. The next run does not print it again.
    With --multicast, JSON lines have only a sequence, a key and a body.
    On Ctrl-C, the command says how to continue. It also ends when its output is a pipe that nobody reads any more.
    """
    from veredus.cli.records import separator_of

    if key_separator and form != "lines":
        raise click.UsageError(f"--key-separator needs --format lines, not {form}")
    _check_names(subscriber, name, attempts_max, park_to)
    begin, separator = start_of(start), separator_of(key_separator)
    _check_filter(keys, where)
    gaps: list[Gap] = []

    def tell_gap(gap: Gap) -> None:
        gaps.append(gap)
        gone = spanned("sequence", gap.first_sequence, gap.next_sequence - 1)
        note(f"gap: {gone} {are(gap.next_sequence - gap.first_sequence)} not available ({gap.code})")

    if group:
        if where or subscriber or attempts_max or park_to or not follow:
            raise click.UsageError(_MULTICAST_ONLY)
        with target.connect() as node:
            opening = node.receive(stream, group, interface=interface, keys=keys or None, start=begin, on_gap=tell_gap)
            with opening as reception:
                _print_messages(reception, count, form, separator)
        _end_with(gaps)
        return
    with Interrupts(watches_output=True) as interrupts, ExitStack() as opened:
        with interrupts.waiting():
            node = opened.enter_context(target.connect())
            opened.enter_context(_warnings_noted())
            subscribing = node.subscribe(
                stream,
                subscriber=subscriber,
                name=name or ("main" if subscriber else ""),
                keys=keys or None,
                where=where,
                start=begin,
                until=0 if follow else _head_of(node, stream) + 1,
                on_gap=tell_gap,
                attempts_max=attempts_max or 0,
                parked_to=park_to,
            )
            subscription = opened.enter_context(subscribing)
        _note_begin(subscription, stream, follow)
        _print_publications(subscription, interrupts, subscriber, count, form, separator)
    _end_with(gaps)


def _note_begin(subscription: Subscription, stream: str, follow: bool) -> None:
    """Say why nothing may come, or why it comes from elsewhere than was asked for."""
    grant = subscription.channel.grant
    assert grant is not None
    given = click.get_current_context().get_parameter_source("start")
    if grant.epoch > 1 and given is ParameterSource.COMMANDLINE:
        note(f"--from has no effect: the subscription exists, and continues with sequence {grant.position}")
    if follow and not grant.head:
        note(f"stream {stream} is empty: waiting for its first publication")


@contextmanager
def _warnings_noted() -> Iterator[None]:
    """What the library warns of is said as any other message."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: note(f"warning: {message}")
        yield


def _print_publications(
    subscription: Subscription,
    interrupts: Interrupts,
    subscriber: str,
    count: int | None,
    form: str,
    separator: bytes,
) -> None:
    """Write what is pushed, a batch at a time, and settle it where there is a subscriber."""
    left, place = count, str(subscription.position)
    while left != 0:
        try:
            with interrupts.waiting():
                batch = subscription.next_batch()
        except KeyboardInterrupt:
            _end_interrupted(interrupts, place, subscriber)
        if batch is None:
            break
        publications = list(batch)[:left]
        _write(publications, form, separator)
        place = str(publications[-1].sequence + 1)
        if subscriber:
            subscription.settle(publications[-1])
        left = None if left is None else left - len(publications)


def _print_messages(reception: Reception, count: int | None, form: str, separator: bytes) -> None:
    """Write what comes by multicast, all that is there at a time."""
    with Interrupts(watches_output=True) as interrupts:
        left, place = count, str(reception.position)
        while left != 0:
            try:
                with interrupts.waiting():
                    messages = reception.next_messages(left)
            except KeyboardInterrupt:
                _end_interrupted(interrupts, place, "")
            _write_messages(messages, form, separator)
            place = str(reception.position)
            left = None if left is None else left - len(messages)


def _check_filter(keys: Sequence[str], where: str | None) -> None:
    """Raise what is wrong with a filter before a node is looked for; what is odd about it is said later."""
    from veredus.client.arguments import filter_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filter_of(keys or None, where)


def _check_names(subscriber: str, name: str, attempts_max: int | None, park_to: str) -> None:
    """Raise `click.UsageError` for options of a durable subscription that lack another one."""
    if name and not subscriber:
        raise click.UsageError("--name needs --subscriber: it tells the subscriptions of one subscriber apart")
    if (attempts_max or park_to) and not subscriber:
        raise click.UsageError("--attempts-max and --park-to need --subscriber: only a durable name counts attempts")
    if attempts_max and not park_to:
        raise click.UsageError("--attempts-max needs --park-to, the stream for dead letters")


def _end_with(gaps: list[Gap]) -> None:
    if gaps:
        from veredus.cli.exits import Ended, Exit

        raise Ended(Exit.GAP)


def start_of(text: str) -> Start:
    """The place that --from names. Raises `click.BadParameter`."""
    from veredus.client import starts

    word, _, rest = text.partition(":")
    if text == "start":
        return starts.beginning()
    if text == "head":
        return starts.head()
    if word == "tail" and rest.isascii() and rest.isdigit():
        return starts.tail(int(rest))
    if word == "after" and rest:
        return starts.after(rest)
    if text.isascii() and text.isdigit():
        return starts.at(int(text))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a place to begin: use start, head, tail:COUNT, a sequence, a time, or after:SOURCE",
            param_hint="--from",
        ) from None
    if when.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone: write {when.isoformat()}Z for UTC", param_hint="--from")
    return starts.since(when)


def _head_of(node: Node, stream: str) -> int:
    return int(node.streams.show(stream)["head"])


def _end_interrupted(interrupts: Interrupts, place: str, subscriber: str) -> NoReturn:
    from veredus.cli.exits import Ended, Exit

    # The first publication that is not settled comes again, whether or not the node hears of the others.
    interrupts.end_with(lambda: Exit.INTERRUPTED)
    note(f"continue with the same {'--subscriber' if subscriber else f'command and --from {place}'}")
    raise Ended(Exit.INTERRUPTED)


def _write(publications: Sequence[Publication], form: str, separator: bytes) -> None:
    from veredus.cli.records import JSON, PREFIXED
    from veredus.cli.written import time_text, write_json, write_lines, write_prefixed

    if form == JSON:
        data = b"".join(
            write_json(
                {
                    "sequence": publication.sequence,
                    "source": publication.source,
                    "number": publication.number,
                    "event_time": time_text(publication.event_time),
                    "append_time": time_text(publication.append_time),
                    **({"is_redelivered": True} if publication.is_redelivered else {}),
                },
                publication.key,
                publication.body,
                publication.attributes,
            )
            for publication in publications
        )
    elif form == PREFIXED:
        data = write_prefixed([publication.body for publication in publications])
    else:
        keys = [publication.key for publication in publications] if separator else ()
        data = write_lines(keys, [publication.body for publication in publications], separator)
    write_octets(data)


def _write_messages(messages: Sequence[Message], form: str, separator: bytes) -> None:
    from veredus.cli.records import JSON, PREFIXED
    from veredus.cli.written import write_json, write_lines, write_prefixed

    if form == JSON:
        data = b"".join(write_json({"sequence": sequence}, key, body, {}) for sequence, key, body in messages)
    elif form == PREFIXED:
        data = write_prefixed([message.body for message in messages])
    else:
        keys = [message.key for message in messages] if separator else ()
        data = write_lines(keys, [message.body for message in messages], separator)
    write_octets(data)
