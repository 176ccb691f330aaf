"""`veredus audit`: a PySpark job that verifies delivery from the recordings of sources, node and subscribers.

verdict = audit(spark, Evidence.in_directory("recordings"), into="report")
"""

from veredus.kernel.extras import without_spark

try:
    import pyspark  # noqa: F401 asked first, so that who lacks it is told what to install
except ModuleNotFoundError:
    raise without_spark("veredus.audit") from None

from .evidence import Evidence, NodeJournal
from .guarantees import CLAIMS, VIOLATIONS, Guarantee, Outcome, Where
from .judging import audit
from .verdict import Verdict

__all__ = ["CLAIMS", "VIOLATIONS", "Evidence", "Guarantee", "NodeJournal", "Outcome", "Verdict", "Where", "audit"]
