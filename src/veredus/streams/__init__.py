"""Streams: sequencing, deduplication, cursors, stages, and the flow between history and the live tail."""
