"""Enumerations whose members are keys on the hot path."""

from __future__ import annotations

from enum import Enum


class Symbol(Enum):
    """An enumeration that hashes its members by identity, for each is there once.

    `Enum` hashes the member's name, by a function in Python that each look into a table of phases or timers calls.
    """

    __hash__ = object.__hash__
