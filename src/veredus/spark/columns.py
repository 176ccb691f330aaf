"""How a column is known by its name: as Spark knows it, whatever its case, unless `spark.sql.caseSensitive` is true.

Only tasks are told that setting. A data source is planned without it; so what depends on it is refused by a task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyspark import TaskContext

from veredus.kernel.errors import Refused


def is_case_sensitive() -> bool:
    """Whether this task's session tells `Key` from `key`; False outside of a task."""
    context = TaskContext.get()
    said = context.getLocalProperty("spark.sql.caseSensitive") if context is not None else None
    return (said or "").lower() == "true"


def known_names(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """For each column that is one of `known` but for its case: which. Raises `Refused("bad-schema")` for two of one."""
    by_folded = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in names:
        one = by_folded.get(name.lower())
        if one is None:
            continue
        if one in taken:
            raise _ambiguous(taken[one], name, f"both mean the column {one}")
        found[name], taken[one] = one, name
    return found


def check_names(names: Iterable[str], known: Mapping[str, str], is_sensitive: bool) -> None:
    """Raise `Refused("bad-schema")` for names that Spark takes for one, or that only their case keeps from `known`."""
    seen: dict[str, str] = {}
    for name in names:
        if is_sensitive:
            if known.get(name, name) != name:
                raise Refused(
                    "bad-schema",
                    f"column {name} differs from {known[name]} by its case, and spark.sql.caseSensitive is true: rename"
                    f" it to {known[name]}, or choose another name if it is an attribute",
                    column=name,
                )
        elif name.lower() in seen:
            raise _ambiguous(
                seen[name.lower()], name, "for Spark they are the same unless spark.sql.caseSensitive is true"
            )
        seen[name.lower()] = name


def value_named(name: str, values: Mapping[str, Any], is_sensitive: bool) -> Any | None:
    """The value of that very name; else the one whose name differs by case alone, unless that counts; else None.

    Raises `Refused("bad-schema")` when there are several such.
    """
    if name in values or is_sensitive:
        return values.get(name)
    alike = [one for one in values if one.lower() == name.lower()]
    if len(alike) > 1:
        raise _ambiguous(
            alike[0], alike[1], f"column {name} can be either: use the exact name of the one that you want"
        )
    return values[alike[0]] if alike else None


def _ambiguous(one: str, other: str, why: str) -> Refused:
    if one == other:
        return Refused("bad-schema", f"column {one} is there twice: rename or drop one", column=one)
    return Refused("bad-schema", f"columns {one} and {other} differ only in case: {why}; rename or drop one")
