"""A node of a run, in a process of its own: `veredus serve`, over a layer that a run's faults come through.

python -m veredus.chaos.served LAYOUT

LAYOUT is the run's directory; the node's settings come from VEREDUS_* variables, as always.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from .layer import Layer
from .layout import Layout
from .leash import end_with_parent
from .platter import Platter


def main() -> None:
    """Install the layer, then serve; the process ends as `veredus serve` does."""
    end_with_parent()
    layout = Layout(Path(sys.argv[1]))
    layer = Layer(layout.journal, Platter(layout.journal, layout.undo_log, layout.kept))
    layer.install()
    layer.follow(layout.switches)
    # Only now: the node's modules take hold of the system's calls when they are imported.
    sys.argv = ["veredus", "serve"]
    runpy.run_module("veredus", run_name="__main__")


if __name__ == "__main__":
    main()
