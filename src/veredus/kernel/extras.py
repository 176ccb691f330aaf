"""What only some parts of Veredus need, and how to get it."""

from __future__ import annotations

from typing import Final

NEEDS_SPARK: Final = "needs Spark: pip install 'veredus[spark]', and Java 17 or newer"


def without_spark(part: str) -> ModuleNotFoundError:
    """What the import of `part` raises where Spark is not installed."""
    return ModuleNotFoundError(f"{part} {NEEDS_SPARK}", name="pyspark")
