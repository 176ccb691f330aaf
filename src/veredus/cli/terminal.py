"""What people and programs see: tables, JSON and JSON lines on standard output, all else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import click
import msgspec
from click.core import ParameterSource

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

F = TypeVar("F", bound=Callable[..., Any])

_CONTROLS = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
"""What a terminal may obey instead of showing it, and how it is shown; as in JSON, which thereby stays valid."""

Row = Mapping[str, object]
TABLE, JSON, JSONL = "table", "json", "jsonl"


def output_option(command: F) -> F:
    """Give a command `-o table|json|jsonl`, as its argument `output`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice((TABLE, JSON, JSONL)),
        default=TABLE,
        show_default=True,
        help="How the result is written to standard output.",
    )
    return option(command)


class Naming(click.Option):
    """An option that names something: one that is empty, as from a variable that is not set, is not taken for none."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """As of any option. Raises `click.BadParameter`."""
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE and "" in (value if isinstance(value, list | tuple) else (value,)):
            said = "it is empty: give a name, or leave the option out"
            raise click.BadParameter(said, param_hint=self.opts[-1])
        return value, source


class FiniteRange(click.FloatRange):
    """Numbers within bounds: what is no number is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises `click.BadParameter`."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a number in the range {self._describe_range()}.", param, ctx)
        return number


class CommandGroup(click.Group):
    """A group whose error for an unknown command lists those that there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name."""
        name = args[0]
        is_known = name.startswith("-") or self.get_command(ctx, name) is not None
        if not is_known and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {name!r} in {ctx.command_path!r}: use {', '.join(self.list_commands(ctx))}.")
        return super().resolve_command(ctx, args)


def note(text: str) -> None:
    """Say something to a person: on standard error."""
    click.echo(text, err=True)


def write_octets(octets: bytes) -> None:
    """Write what others have published to standard output, and flush it: as it is, but harmless on a terminal."""
    _write_bytes(harmless(octets).encode() if sys.stdout.isatty() else octets)


def harmless(octets: bytes) -> str:
    r"""The text, with control characters but tab and line feed as `\u001b`, and what is no UTF-8 as `\xff`."""
    return octets.decode(errors="backslashreplace").translate(_CONTROLS)


def write_rows(rows: Iterable[Row], output: str, columns: Sequence[str] = ()) -> None:
    """Write rows as a table, one JSON array, or JSON lines. `columns` are those of the table; JSON has them all."""
    listed = list(rows)
    if output == TABLE:
        _write_table(listed, list(columns) or list(dict.fromkeys(name for row in listed for name in row)))
    elif output == JSON:
        _write_bytes(msgspec.json.format(_encoded(listed), indent=2) + b"\n")
    else:
        _write_bytes(b"".join(_encoded(row) + b"\n" for row in listed))


def write_one(row: Row, output: str) -> None:
    """Write one thing: its fields below one another, or as one JSON object."""
    if output == TABLE:
        _write_table([{"": name, " ": value} for name, value in row.items()], ["", " "])
    elif output == JSON:
        _write_bytes(msgspec.json.format(_encoded(row), indent=2) + b"\n")
    else:
        _write_bytes(_encoded(row) + b"\n")


def time_text(microseconds: int) -> str:
    """Microseconds since the Unix epoch as RFC 3339, in UTC."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def progress() -> Progress | Unseen:
    """A progress display on standard error; on anything but a terminal it shows nothing."""
    if not sys.stderr.isatty():
        return Unseen()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=5,
    )


class Unseen:
    """A progress display that nobody sees."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def add_task(self, description: str, *, total: float | None, figures: str) -> TaskID:
        """As rich's: what else there is to be shown."""
        return cast("TaskID", 0)

    def update(self, task: TaskID, *, completed: float | None = None, figures: str = "") -> None:
        """As rich's: how far it is."""


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    texts = [[_text(row.get(name)) for name in columns] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(map(str.strip, columns)))
        for index, name in enumerate(columns):
            is_number = bool(rows) and all(isinstance(row.get(name), int | float) for row in rows)
            table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=index == 0)
        for line in texts:
            table.add_row(*(Text(harmless(cell.encode())) for cell in line))
        Console().print(table)
        return
    header = [list(columns)] if any(map(str.strip, columns)) else []
    widths = [max(map(len, column), default=0) for column in zip(*header, *texts, strict=True)]
    for line in header + texts:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return value.hex()
        case dict() | list() | tuple():
            return _encoded(value).decode()
        case _:
            return str(value)
