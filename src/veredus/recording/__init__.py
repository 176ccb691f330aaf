"""What sources and subscribers write down of what they do, so that `veredus audit` can judge it.

    with Recording("recordings", "desk-1") as recording:
        recording.offered("trades", "desk-1", 1, keys, bodies)

A file is read by the audit once `to_parquet` has brought the recordings of all processes together.
"""

from .conversion import Manifest, manifest_of, to_parquet
from .digests import digest_of, digests_of
from .kinds import SCHEMAS, Kind
from .writing import Recording

__all__ = ["SCHEMAS", "Kind", "Manifest", "Recording", "digest_of", "digests_of", "manifest_of", "to_parquet"]
