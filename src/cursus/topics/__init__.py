"""Clients of the topic service."""
