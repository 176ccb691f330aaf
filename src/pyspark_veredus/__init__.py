"""Lets Spark find the data source `veredus` by itself: it looks for a `DefaultSource` in packages of this prefix."""

import warnings

try:
    from veredus.spark.source import VeredusDataSource as DefaultSource
except ImportError as error:
    # A package that fails here would keep Spark from finding any other; one without a source is passed by.
    warnings.warn(f"the data source veredus cannot be had: {error}", stacklevel=1)
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
