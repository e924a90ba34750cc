"""Draws the charts of the page, in the environment that has matplotlib: `python plots.py DIRECTORY
< drawings.json`.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS, LIMIT, OTHERS = "#1463b8", "#b9bfc6", "#7d8794"
LINES = ["#1463b8", "#c8553d", "#5a9e6f", "#8a63b3", "#c79a2b", "#3f9aa8", "#6b6f76"]


def main() -> None:
    directory = Path(sys.argv[1])
    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
        }
    )
    for drawing in json.load(sys.stdin):
        figure, axes = plt.subplots(
            figsize=(7.2, max(1.2 + 0.34 * len(drawing["series"]), 3.0)), layout="constrained"
        )
        {"bars": bars, "steps": steps}[drawing["kind"]](axes, drawing["series"])
        axes.set_title(drawing["title"], fontweight="bold")
        axes.set_xlabel(drawing["axis"])
        figure.savefig(directory / drawing["file"], dpi=110, metadata={"Software": None})
        plt.close(figure)


def bars(axes: Any, series: list[Any]) -> None:
    """Medians, with a line from the lowest to the highest."""
    names = [name for name, _ in series]
    middles = [statistics.median(values) for _, values in series]
    below = [middle - min(values) for middle, (_, values) in zip(middles, series, strict=True)]
    above = [max(values) - middle for middle, (_, values) in zip(middles, series, strict=True)]
    colours = [
        OURS if name == "Blueque" else LIMIT if "limit" in name else OTHERS for name in names
    ]
    axes.barh(
        names,
        middles,
        xerr=[below, above],
        color=colours,
        error_kw={"lw": 1, "capsize": 2, "ecolor": "#333333"},
    )
    axes.invert_yaxis()
    axes.margins(x=0.14)
    positive = [middle for middle in middles if middle > 0]
    if positive and max(positive) > 40 * min(positive):
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_formatter(
            lambda value, place: f"{value:,.0f}" if max(middles) >= 10 else f"{value:g}"
        )
    for place, (middle, more) in enumerate(zip(middles, above, strict=True)):
        axes.annotate(
            f"{middle:,.0f}" if middle >= 100 else f"{middle:.2f}",
            (middle + more, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )


def steps(axes: Any, series: list[Any]) -> None:
    """The share of tasks that took at most so long."""
    for number, (name, values) in enumerate(series):
        ordered = sorted(values)
        shares = [100 * (place + 1) / len(ordered) for place in range(len(ordered))]
        axes.step(
            ordered,
            shares,
            where="post",
            label=name,
            color=LINES[number % len(LINES)],
            lw=2.2 if name == "Blueque" else 1.2,
        )
    axes.set_xscale("log")
    axes.set_ylabel("% of tasks")
    axes.grid(alpha=0.25, which="both")
    # no line is hidden by it
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


if __name__ == "__main__":
    main()
