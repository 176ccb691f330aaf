"""`veredus pub`: from a pipe or a file into a stream, exactly once where a source has a name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import isfinite
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from veredus.cli.interrupts import Interrupts
from veredus.cli.link import Target, node_options, seconds_of
from veredus.cli.terminal import Naming, note, progress
from veredus.kernel.words import are, counted, spanned, were

if TYPE_CHECKING:
    from veredus.cli.exits import Exit
    from veredus.cli.records import Chunk
    from veredus.cli.resumption import RememberingInput
    from veredus.client.ends import Publisher
    from veredus.delivery.batch import BatchLimits
    from veredus.delivery.publication import AttributeValue
    from veredus.kernel.errors import Misuse

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?", re.ASCII)
UNTOLD_S = 1.0
"""So long a command that was interrupted may go on without saying why."""
DIGITS_MAX = 60
"""A whole number may be written with so many digits."""
FORMATS = ("lines", "prefixed", "json")
_FOR_GOOD = ("stream-deleted", "stream-replaced")
"""Behind these there is nothing to continue with the rest of the input, nor behind another publisher."""


class _PublishCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of any command; what stands where `echo` has its text is told where records come from."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" not in error.message:
                raise
            advice = "records come from standard input or --file: echo hello | veredus pub STREAM"
            raise click.UsageError(f"{error.message}; {advice}", ctx) from None


@click.command(cls=_PublishCommand)
@click.argument("stream")
@click.option(
    "--source",
    cls=Naming,
    metavar="NAME",
    default="",
    help="The durable name of the publisher. Without it, the node recognises no duplicates.",
)
@click.option(
    "--file", "file", cls=Naming, type=click.File("rb"), default="-", help="Read this file instead of standard input."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="lines", show_default=True, help="The form of the records."
)
@click.option("--key", help="The key of every publication without a key of its own.")
@click.option(
    "--key-separator",
    default="",
    help="In lines, the text between key and body: '\\t'. A line without it is refused, unless there is --key.",
)
@click.option(
    "--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Set on all publications; repeatable."
)
@click.option(
    "--from", "first", metavar="N", type=click.IntRange(1), default=1, help="Begin with the N-th record of the input."
)
@click.option("--count", type=click.IntRange(1), help="Publish this many records, then stop.")
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Continue after the last record that the source published.  [default: for a file with --source]",
)
@click.option("--compression", type=click.Choice(("zstd", "lz4")), help="Compress batches.")
@click.option(
    "--patience",
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="How long to wait for acknowledgements at the end. It limits --timeout for each answer before that, too.",
)
@node_options
def publish(
    stream: str,
    source: str,
    file: BinaryIO,
    form: str,
    key: str | None,
    key_separator: str,
    attributes: tuple[str, ...],
    first: int,
    count: int | None,
    resume: bool | None,
    compression: Literal["zstd", "lz4"] | None,
    patience: str,
    target: Target,
) -> None:
    """Publish records to STREAM: lines, length-prefixed (4 bytes, big-endian) or JSON lines.

    With --source and a file (or `< file`), the node stores the place in the file together with the records. Run the
    same command again after any failure: it publishes the missing records, and no record twice. It leaves a last
    record that is not complete, as a line without a line break, for a later run.
    """
    from veredus.cli.records import read_chunks, separator_of
    from veredus.cli.resumption import RememberingInput

    if key_separator and form != "lines":
        raise click.UsageError(f"--key-separator needs --format lines, not {form}")
    if resume is None:
        resume = bool(source) and file.seekable() and first == 1
    if resume and (not source or first != 1):
        missing = "needs --source" if not source else "cannot be used with --from"
        raise click.UsageError(f"--resume {missing}")
    octets = _key_of(key or "")
    constant = _attributes_of(attributes)
    separator = separator_of(key_separator)
    timeout_s = seconds_of(patience, "--patience")
    remembering = RememberingInput(file)
    session = _Publishing(remembering, resume, octets, constant, first)
    last = None if count is None else first - 1 + count

    def read(offset: int, tell_rest: Callable[[int], None] | None) -> Iterator[Chunk]:
        return read_chunks(remembering, form, separator, offset, last, key is None, tell_rest, limits.body_size_max)

    with Interrupts() as interrupts, ExitStack() as opened:
        with interrupts.waiting():
            node = opened.enter_context(target.connect(timeout_s))
            welcome = node._node.connection.welcome
            assert welcome is not None
            limits = welcome.limits
            if file.isatty():
                note("reading records from the terminal: one a line, Ctrl-D at the end")
            session.look_at_first(read(0, _say_nothing if resume else None), limits)
            publishing = node.publisher(
                stream, source=source, resume="token" if resume else "number", compression=compression
            )
            offset = session.begin(opened.enter_context(publishing))
        session.run(read(offset, _say_rest if resume else None), interrupts, timeout_s)


class _Publishing:
    """One run of the command: what was given to the publisher, and what is to be said at the end."""

    _publisher: Publisher

    def __init__(
        self,
        source: RememberingInput,
        resumes: bool,
        key: bytes,
        attributes: dict[str, AttributeValue] | None,
        first: int,
    ) -> None:
        self._source = source
        self._resumes = resumes
        self._key = key
        self._attributes = attributes
        self._first = first
        self._read_count = 0
        self._published_count = 0

    def look_at_first(self, chunks: Iterator[Chunk], limits: BatchLimits) -> None:
        """Wait for the first record, and read it again later. Raises `Misuse` if it cannot be published: the stream
        would be there, with nothing in it.
        """
        from veredus.client.given import listed_of
        from veredus.kernel.errors import Misuse, VeredusError

        try:
            chunk = next(chunks, None)
            if chunk is not None and self._first == 1:
                first = chunk.part(0, 1)
                try:
                    listed_of(*self._columns(first), limits)
                except Misuse as error:
                    raise _at(first, error) from None
        except (VeredusError, OSError, KeyboardInterrupt) as error:
            self._say_what_became(error)
            raise
        self._source.begin_again()

    def begin(self, publisher: Publisher) -> int:
        """Go to where the input is to be read from; the offset there. Raises `Refused("other-input")`."""
        from veredus.kernel.errors import Refused

        self._publisher = publisher
        if not self._resumes:
            return 0
        if not publisher.resume_token and publisher.last_number:
            records = counted(publisher.last_number, "record")
            raise Refused(
                "other-input",
                f"the source has published {records} without storing a place in an input:"
                " use another --source, or use --no-resume to publish the whole input",
                last_number=publisher.last_number,
            )
        with progress() as bar:
            task = bar.add_task("comparing with what is published", total=None, figures="")

            def tell(size: int, whole_size: int) -> None:
                bar.update(task, completed=size, figures=f"{size:,} of {whole_size:,} bytes")

            return self._source.go_to(publisher.resume_token, tell)

    def run(self, chunks: Iterator[Chunk], interrupts: Interrupts, timeout_s: float) -> None:
        """Publish all chunks, wait for their acknowledgements, and say what became of them."""
        from veredus.cli.exits import Ended, Exit
        from veredus.kernel.errors import Unavailable, VeredusError

        ending: BaseException | None = None
        # The publisher may be over while nothing comes that could be given to it.
        interrupts.watch(self._check_going_on)
        with progress() as bar:
            task = bar.add_task("publishing", total=None, figures="")
            try:
                while True:
                    with interrupts.waiting():
                        chunk = next(chunks, None)
                    if chunk is None:
                        break
                    self._publish(chunk)
                    bar.update(task, figures=f"{self._published_count:,} published")
            except (VeredusError, OSError, KeyboardInterrupt) as error:
                # An input that can be read no further takes nothing from what was read.
                ending = error
        interrupts.end_with(self._last_words)
        try:
            self._wait(timeout_s, is_told=isinstance(ending, KeyboardInterrupt))
            # All may be in the stream, and another publisher, too.
            self._check_going_on()
        except VeredusError as error:
            ending = error
        if isinstance(ending, KeyboardInterrupt):
            raise Ended(self._last_words())
        self._say_what_became(ending)
        if self._in_doubt_count and isinstance(ending, Unavailable):
            note(f"veredus: {ending.message} [{ending.code}]")
            raise Ended(Exit.IN_DOUBT)
        if ending is not None:
            raise ending

    def _wait(self, timeout_s: float, *, is_told: bool) -> None:
        """Wait for all acknowledgements; with `is_told`, say so where that takes long. Raises as `Publisher.flush`."""
        from veredus.kernel.errors import Unavailable

        if is_told and timeout_s > UNTOLD_S:
            try:
                self._publisher.flush(timeout_s=UNTOLD_S)
            except Unavailable as error:
                if error.code != "in-doubt":
                    raise
                unacknowledged = counted(self._in_doubt_count, "publication")
                note(f"waiting until {unacknowledged} {are(self._in_doubt_count)} acknowledged: Ctrl-C again ends this")
        self._publisher.flush(timeout_s=timeout_s)

    def _last_words(self) -> Exit:
        from veredus.cli.exits import Exit

        self._say_what_became(KeyboardInterrupt())
        return Exit.IN_DOUBT if self._in_doubt_count else Exit.INTERRUPTED

    def _check_going_on(self) -> None:
        """Raise why nothing can be published any more, if something has ended the publisher."""
        failure = self._publisher._intake.failure
        if failure is not None:
            raise failure.again()

    @property
    def _in_doubt_count(self) -> int:
        return max(0, int(self._publisher.number) - int(self._publisher.taken_number)) if self._published_count else 0

    def _publish(self, chunk: Chunk) -> None:
        skipped = min(max(0, self._first - 1 - self._read_count), len(chunk.bodies))
        self._read_count += len(chunk.bodies)
        if skipped:
            chunk = chunk.part(skipped, len(chunk.bodies))
        if chunk.bodies:
            self._publish_all(chunk)

    def _publish_all(self, chunk: Chunk) -> None:
        """Publish what is right before the first record that the publisher refuses, and raise where that stands."""
        from veredus.kernel.errors import Misuse

        count = len(chunk.bodies)
        try:
            self._publish_at_once(chunk)
        except Misuse as error:
            # All of them, or none.
            self._check_going_on()
            if count == 1:
                raise _at(chunk, error) from None
        else:
            return
        self._publish_all(chunk.part(0, count // 2))
        self._publish_all(chunk.part(count // 2, count))

    def _publish_at_once(self, chunk: Chunk) -> None:
        self._publisher.publish_many(*self._columns(chunk))
        self._published_count += len(chunk.bodies)
        token = self._source.token_at(chunk.end_offset)
        self._publisher.flush(token if self._resumes else b"", wait=False)

    def _columns(self, chunk: Chunk) -> tuple[Any, Any, Any, Any]:
        """Keys, bodies, attributes and event times, as `Publisher.publish_many` takes them."""
        keys = [self._key] * len(chunk.bodies) if chunk.keys is None else chunk.keys
        if self._key and chunk.keys is not None:
            keys = [key or self._key for key in chunk.keys]
        return keys, chunk.bodies, self._with_constant(chunk), chunk.event_times

    def _with_constant(self, chunk: Chunk) -> Any:
        if self._attributes is None:
            return chunk.attributes
        if chunk.attributes is None:
            return [self._attributes] * len(chunk.bodies)
        return [{**self._attributes, **(own or {})} for own in chunk.attributes]

    def _say_what_became(self, ending: BaseException | None) -> None:
        from veredus.kernel.errors import Fenced, Misuse, VeredusError

        is_for_good = isinstance(ending, Fenced) or (isinstance(ending, VeredusError) and ending.code in _FOR_GOOD)
        in_doubt = self._in_doubt_count
        taken = self._published_count - in_doubt
        if ending is not None and not self._published_count:
            note("nothing was published")
        elif sys.stderr.isatty() or ending is not None:
            where = f"up to number {self._publisher.taken_number}"
            done = were(1 if self._published_count == 1 else taken)
            note(f"{taken} of {counted(self._published_count, 'publication')} {done} acknowledged, {where}")
        if ending is None and not self._resumes and self._publisher.source and not self._source.seekable():
            note(
                "the node does not store how far a pipe was read: if you run this command again, it publishes all"
                " records again; with --resume in each run, it publishes only the missing ones"
            )
        if in_doubt:
            numbers = spanned("number", self._publisher.taken_number + 1, self._publisher.number)
            note(f"{in_doubt} {are(in_doubt)} in doubt: {numbers}")
        if ending is None or is_for_good:
            return
        if self._resumes:
            correct = "correct the record, then " if isinstance(ending, Misuse) else ""
            note(f"{correct}run the same command again to continue")
        elif self._published_count:
            twice = (
                "; without --source, the stream may then have twice what is in doubt"
                if in_doubt and not self._publisher.source
                else ""
            )
            note(f"continue with --from {max(self._first - 1, 0) + taken + 1}{twice}")


def _at(chunk: Chunk, error: Misuse) -> Misuse:
    """What is wrong with the only record of a chunk, and where that stands."""
    return type(error)(error.code, f"the record at {chunk.place_of(0)}: {error.message}", **error.details)


def _say_nothing(_size: int) -> None:
    """What is left at the end is looked at again."""


def _say_rest(size: int) -> None:
    rest = counted(size, "byte")
    note(f"the last record is not complete ({rest}) and was not published: run the command again when it is")


def _attributes_of(texts: tuple[str, ...]) -> dict[str, AttributeValue] | None:
    """The attributes of `--attribute`, by name. Raises `click.BadParameter`."""
    from veredus.delivery.publication import ATTRIBUTE_NAME_SIZE_MAX

    attributes: dict[str, AttributeValue] = {}
    for text in texts:
        _octets_of(text, "--attribute")
        name, equals, value = text.partition("=")
        fault = ""
        if not equals or not name:
            fault = f"{text!r} is not NAME=VALUE"
        elif name.startswith("$"):
            fault = f"{name}: names that begin with $ are reserved"
        elif name in attributes:
            fault = f"{name} is given twice: a publication has one value for each name"
        elif len(name.encode()) > ATTRIBUTE_NAME_SIZE_MAX:
            fault = f"{name[:32]}…: a name may have at most {ATTRIBUTE_NAME_SIZE_MAX} bytes"
        if fault:
            raise click.BadParameter(fault, param_hint="--attribute")
        attributes[name] = _typed(name, value)
    return attributes or None


def _key_of(text: str) -> bytes:
    """The key of `--key`. Raises `click.BadParameter`."""
    from veredus.kernel.names import KEY_SIZE_MAX

    key = _octets_of(text, "--key")
    if len(key) > KEY_SIZE_MAX:
        said = f"a key may have at most {KEY_SIZE_MAX} bytes, this one has {len(key)}"
        raise click.BadParameter(said, param_hint="--key")
    return key


def _octets_of(text: str, option: str) -> bytes:
    """The text as UTF-8. Raises `click.BadParameter` for bytes of the command line that are none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"{text!r} is not UTF-8 at position {error.start}", param_hint=option) from None


def _typed(name: str, text: str) -> AttributeValue:
    """The value that a text shows. Raises `click.BadParameter` for a number that no attribute can be."""
    if text in ("true", "false"):
        return text == "true"
    is_whole = _INTEGER.fullmatch(text) is not None
    if not is_whole and not _DECIMAL.fullmatch(text):
        return text.removeprefix('"').removesuffix('"') if text.startswith('"') and text.endswith('"') else text
    number = float(text)
    if is_whole and len(text) <= DIGITS_MAX and -(2**63) <= int(text) < 2**63:
        return int(text)
    if is_whole or not isfinite(number):
        shown = text if len(text) <= DIGITS_MAX else f"{text[:DIGITS_MAX]}…"
        said = f"{name}: {shown} does not fit 64 bits; for text, write it in double quotes: '{name}=\"{shown}\"'"
        raise click.BadParameter(said, param_hint="--attribute")
    return number
