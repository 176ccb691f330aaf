"""The table of options on the page says what the code takes: every option, for what it is, and its default."""

import re
from pathlib import Path

from veredus.spark import options as o

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
DEFAULTS = {
    "address": o.ADDRESS_DEFAULT,
    "timeoutSeconds": o.TIMEOUT_SECONDS_DEFAULT,
    "maxRowsPerTrigger": o.ROWS_PER_TRIGGER_DEFAULT,
    "rowsPerPartition": o.ROWS_PER_PARTITION_DEFAULT,
    "maxTriggerDelaySeconds": o.TRIGGER_DELAY_SECONDS_DEFAULT,
}


def rows_on_the_page() -> dict[str, tuple[str, str]]:
    """For each option its default and what it is for."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.*?) ?\| (all|reading|writing|streaming|batch) \|", PAGE.read_text(), re.MULTILINE
    )
    return {name: (default, used) for name, default, used in rows}


def test_the_page_lists_the_options_that_readers_and_writers_take() -> None:
    listed = rows_on_the_page()
    assert set(listed) == set(o._READ_OPTIONS) | set(o._WRITE_OPTIONS)
    for name, (_, used) in listed.items():
        is_read, is_written = name in o._READ_OPTIONS, name in o._WRITE_OPTIONS
        wanted = {(True, True): ("all",), (True, False): ("reading", "streaming", "batch")}
        assert used in wanted.get((is_read, is_written), ("writing", "batch")), name


def test_the_page_gives_the_defaults_of_the_code() -> None:
    listed = rows_on_the_page()
    for name, default in DEFAULTS.items():
        assert listed[name][0].strip("`").replace(",", "") == str(default), name
