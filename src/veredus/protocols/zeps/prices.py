"""What it costs to act on what a native frame holds, beside what a frame of its kind always costs; in nanoseconds."""

from __future__ import annotations

RAW_OCTET_NS = 1
"""What a byte costs that was compressed, to decompress and to verify; measured, roughly."""
PAGE_COST_NS = 2_000_000
"""What a page of a list costs, or what is as long, before it is known how long it is."""
RAISED_NS = 15_000
"""What it costs to raise a source; measured, roughly."""
ROW_NS = 120
"""What a row of a batch costs; measured, roughly."""
STAGE_NS = 2_000
"""What it costs to show a stage or to drop it; measured, roughly. Whoever opens one pays for that, too, since a newer
run drops it unnamed.
"""
SETTLED_NS = 50
"""What a range that is said to be settled costs to encode; measured, roughly."""
REPLY_OCTET_NS = 25
"""What a byte of a reply costs, to gather and to encode; measured, roughly."""
