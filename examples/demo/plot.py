"""The picture of a run: rows a second through every stage, and who was killed when."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {"node": "tab:red", "publisher": "tab:purple", "driver": "tab:brown"}
WIDTH_SECONDS = 1.0


@dataclass
class Timeline:
    """How many rows had come through each stage, moment by moment; and who was killed when."""

    seconds: list[float] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)
    kills: list[tuple[float, str]] = field(default_factory=list)

    def sample(self, seconds: float, **counts: int) -> None:
        """So many rows up to now."""
        self.seconds.append(seconds)
        for name, count in counts.items():
            self.counts.setdefault(name, []).append(count)


def draw(timeline: Timeline, path: Path, title: str) -> None:
    """Write the picture as PNG."""
    figure, axes = plt.subplots(figsize=(11, 5), dpi=120)
    edges = np.arange(0, max(timeline.seconds) + 2 * WIDTH_SECONDS, WIDTH_SECONDS)
    for name, counts in timeline.counts.items():
        rates = np.diff(np.interp(edges, timeline.seconds, counts)) / WIDTH_SECONDS
        axes.step(edges[:-1], rates / 1000, where="post", label=name, linewidth=1.4)
    for seconds, victim in timeline.kills:
        axes.axvline(seconds, color=COLOURS[victim], linestyle="--", linewidth=1)
        axes.annotate(
            f"✝ {victim}", (seconds, 1.0), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right",
            color=COLOURS[victim], fontsize=8,
        )  # fmt: skip
    axes.set(xlabel="seconds", ylabel="thousand rows per second", title=title, xlim=(0, edges[-1]), ylim=(0, None))
    # A driver that comes back reads what it missed at many times the pace.
    axes.set_yscale("symlog", linthresh=1)
    axes.legend(loc="lower right", framealpha=0.9)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
