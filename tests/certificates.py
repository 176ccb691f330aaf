"""Where the certificates of the tests lie, with their keys: in files of the user who runs the tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

KEPT = Path(__file__).parent / "runtime" / "certificates"


def of_this_user(kept: Path) -> Path:
    """The directory, or a copy where its files are another user's, as in a container with a mounted checkout: the keys
    of another user than this one and root are refused.
    """
    if all(path.stat().st_uid in (os.geteuid(), 0) for path in kept.iterdir()):
        return kept
    copy = Path(tempfile.mkdtemp(prefix="certificates-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    shutil.copytree(kept, copy, dirs_exist_ok=True)
    return copy


CERTIFICATES = of_this_user(KEPT)
