"""How far a streaming query is behind, from what Spark reports of it.

Spark (4.3) gives a Python source no metrics and no description of its own in `StreamingQueryProgress`, but shows the
newest offset beside the one that was read to, and ours say which streams they are of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .offsets import Offsets, offsets_of


def lag_of(progress: Any) -> dict[str, int]:
    """By stream, the rows that were there and not read when `progress` was reported; {} where Spark says nothing yet.

    `progress`: a `StreamingQueryProgress`, as a listener gets it and `query.lastProgress` gives it, or None. Sources
    that are not ours are passed over; where two of a query read one stream, it is the one that is further behind.
    """
    lags: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for name, newest in latest.items():
            at = end.get(name)
            is_begun = at is not None and at.incarnation == newest.incarnation
            # A newest offset begins at the oldest row that was kept: what was trimmed before is not waiting.
            read_to = max(newest.began, at.sequence if at and is_begun else 1)
            lags[name] = max(lags.get(name, 0), newest.sequence - read_to)
    return lags


def read_to_of(progress: Any) -> dict[str, int]:
    """By stream, the last sequence that finished batches have read, 0 for none; {} where Spark says nothing yet.

    `progress` as for `lag_of`; where two sources of a query read one stream, it is the one that is further behind.
    """
    places: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        for name, end in _offsets(source["endOffset"]).items():
            places[name] = min(places.get(name, end.sequence - 1), end.sequence - 1)
    return places


def _offsets(text: object) -> Offsets:
    """Our offsets as Spark shows them: as JSON or taken apart; {} for none, and for those of another source."""
    try:
        shown = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return offsets_of(shown) if isinstance(shown, Mapping) and set(shown) == {"streams"} else {}
