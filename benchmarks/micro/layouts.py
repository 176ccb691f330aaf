"""What a publication costs in either payload layout, by the size of its batch: `python -m benchmarks.micro.layouts`.

Four steps are timed. *Encode* makes a payload out of the source's lists, *verify* is the node's, *read* gives a
subscriber lists, and *filter* gives the node columns to try a predicate on. The crossover of encode + verify + read is
what `ROWS_COUNT_MAX` in `veredus.delivery.payload` should be near; filter says what a filtered stream adds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from veredus.delivery.batch import BatchHeader, BatchLimits, Layout, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of, read_columns, read_rows, verify_payload
from veredus.delivery.publication import AttributeValue, Rows
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.delivery.rows import encode_rows
from veredus.kernel.octets import Octets

COUNTS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 4096)
STEPS: Final = ("encode", "verify", "read", "filter")
BODY_SIZE: Final = 100
BUDGET_NS: Final = 12_000_000
ROUNDS_MIN: Final = 5
LIMITS: Final = BatchLimits()

Figures = dict[str, float]
"""Nanoseconds a publication by step, and `size`, bytes a publication of header and payload."""


def publications(count: int, has_attributes: bool) -> Rows:
    """`count` publications with bodies of 100 bytes and, if asked for, an integer, a float and a text attribute."""
    origins = ("EWR", "JFK", "LGA")
    attributes: list[dict[str, AttributeValue] | None] = [
        {"distance": 700 + index, "dep_delay": index / 4, "origin": origins[index % 3]} for index in range(count)
    ]
    keys = [f"EWR.LAX.UA.{index % 500}".encode() for index in range(count)]
    bodies = [f"{index:0{BODY_SIZE}}".encode() for index in range(count)]
    return Rows(keys, bodies, None, attributes if has_attributes else None)


def encode(rows: Rows, layout: Layout) -> list[Octets]:
    """The payload as a source makes it."""
    return [encode_rows(rows)] if layout == Layout.ROWS else encode_columns(columns_of(rows))


def least_ns(step: Callable[[], object]) -> float:
    """The least time of many: what is above it is the machine's, not the step's."""
    least, spent, rounds = 1 << 62, 0, 0
    while spent < BUDGET_NS or rounds < ROUNDS_MIN:
        start = time.perf_counter_ns()
        step()
        taken = time.perf_counter_ns() - start
        least, spent, rounds = min(least, taken), spent + taken, rounds + 1
    return float(least)


def measured(count: int, layout: Layout, has_attributes: bool) -> Figures:
    """All steps for one size of batch in one layout."""
    rows = publications(count, has_attributes)
    header = BatchHeader(int(layout), 0, 0, 0, count, 1, 1, 1, count, 1, 0, 0)
    payload = encode(rows, layout)
    record = signed_record(header, payload)
    header = header._replace(payload_size=sum(map(len, payload)))
    batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size]
    verify_payload(batch, header, LIMITS)
    steps: dict[str, Callable[[], object]] = {
        "encode": lambda: b"".join(encode(rows, layout)),
        "verify": lambda: verify_payload(batch, header, LIMITS),
        "read": lambda: read_rows(batch, header),
        "filter": lambda: read_columns(batch, header),
    }
    return {**{name: least_ns(step) / count for name, step in steps.items()}, "size": header.size / count}


def table(has_attributes: bool) -> str:
    """One Markdown table: rows and columns side by side, nanoseconds a publication."""
    heads = [f"{step} {name}" for step in (*STEPS, "sum", "bytes") for name in ("rows", "cols")]
    lines = ["| count | " + " | ".join(heads) + " |", "|--:" * (len(heads) + 1) + "|"]
    for count in COUNTS:
        cells: list[str] = []
        figures = {layout: measured(count, layout, has_attributes) for layout in Layout}
        for one in figures.values():
            one["sum"] = one["encode"] + one["verify"] + one["read"]
        for step in (*STEPS, "sum", "size"):
            cells += [f"{figures[layout][step]:,.0f}" for layout in (Layout.ROWS, Layout.COLUMNS)]
        lines.append(f"| {count:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print both tables: plain publications, and such with three attributes."""
    for title, has_attributes in (("no attributes", False), ("three attributes", True)):
        sys.stdout.write(f"Bodies of {BODY_SIZE} bytes, {title}; ns a publication, sum = encode + verify + read\n\n")
        sys.stdout.write(table(has_attributes) + "\n\n")


if __name__ == "__main__":
    main()
