"""Users of this machine, by name."""

from __future__ import annotations

import pwd


def name_of_user(user: int) -> str:
    """The name of the user with this number; the number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
