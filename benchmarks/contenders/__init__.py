"""Veredus under measurement, through its own client library."""
