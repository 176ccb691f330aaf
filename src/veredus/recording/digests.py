"""What stands for a publication's bytes: XXH64 of its key, and with that as the seed of its body.

It is what Spark's `xxhash64(key, body)` gives, null columns left out included, so that the rows of a stream are hashed
in the JVM and compared with what a source wrote down here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from veredus.kernel.octets import Octets

_SEED: Final = 42
_SIGN: Final = 1 << 63


def digest_of(key: Octets | str | None, body: Octets | str | None) -> int:
    """The digest of one publication, a signed integer of 64 bits. Text counts as UTF-8, None as a null column."""
    digest = _chained(body, _chained(key, _SEED))
    return (digest ^ _SIGN) - _SIGN


def digests_of(keys: Sequence[Octets | str | None], bodies: Sequence[Octets | str | None]) -> npt.NDArray[np.int64]:
    """The digest of each publication. Raises `ValueError` where there is not a body for each key."""
    pairs = zip(keys, bodies, strict=True)
    digests = (_chained(body, _chained(key, _SEED)) for key, body in pairs)
    return np.fromiter(digests, np.uint64, len(keys)).view(np.int64)


def _chained(value: Octets | str | None, seed: int) -> int:
    if value is None:
        return seed
    return xxh64_intdigest(value.encode() if isinstance(value, str) else value, seed)
