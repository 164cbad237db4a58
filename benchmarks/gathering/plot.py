"""A picture of the session: one panel per payload, one line per way, time on a logarithmic scale."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from benchmarks.gathering.results import Cell, Results
from benchmarks.gathering.setting import BARE, MPI, ORIGINAL, OURS, TORCH

mpl.use("Agg")  # before pyplot: there may be no display

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

COLOURS = {OURS: "#0b6e4f", TORCH: "#e07a1f", ORIGINAL: "#b3312c", BARE: "#7a7a7a", MPI: "#3a5fa8"}
LABELS = {OURS: "rankdrill", TORCH: "torch", ORIGINAL: "hand-written", BARE: "the machine's limits", MPI: "MPI"}
PANEL_INCHES, ROW_INCHES, NAMES_INCHES, EDGES_INCHES = 2.6, 0.3, 3.4, 1.5
LEGEND_IN_ONE_ROW = 3  # panels
SPARED_DECADES = 1.3  # at most, so that the figure beside the slowest dot has room


def draw(results: Results, path: Path) -> None:
    """Write the picture to `path`, in the format its suffix names."""
    payloads = [key for key in results.payloads() if any(cell.repetitions for cell in results.of(key))]
    if not payloads:
        raise ValueError("nothing was measured that could be drawn")
    measured = {cell.name for cell in results if cell.repetitions}
    names = list(dict.fromkeys((cell.name, cell.family) for cell in results if cell.name in measured))
    size = (NAMES_INCHES + PANEL_INCHES * len(payloads), EDGES_INCHES + ROW_INCHES * len(names))
    figure, grid = plt.subplots(1, len(payloads), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axes, payload in zip(grid[0], payloads, strict=True):
        _panel(axes, results, payload, {name: row for row, (name, _) in enumerate(names)})
    first = grid[0][0]
    first.set_yticks(range(len(names)), [name for name, _ in names])
    for label, (_, family) in zip(first.get_yticklabels(), names, strict=True):
        label.set_color(COLOURS[family])
    first.set_ylim(len(names) - 0.5, -0.5)
    families = list(dict.fromkeys(family for _, family in names))
    handles: list[Line2D] = [
        Line2D([], [], color=COLOURS[each], marker="o", ls="", label=LABELS[each]) for each in families
    ]
    handles.append(Line2D([], [], color=COLOURS[BARE], ls=":", label="copy limit"))
    handles.append(Line2D([], [], color=COLOURS[TORCH], ls=":", label="torch all_gather_object"))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles) if len(payloads) > LEGEND_IN_ONE_ROW else 3,
        frameon=False,
    )
    figure.supxlabel(f"milliseconds: median of the slowest of {results.size} ranks; the line spans all repetitions")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(axes: Axes, results: Results, payload: str, rows: dict[str, int]) -> None:
    cells = [cell for cell in results.of(payload) if cell.repetitions]
    for cell in cells:
        _dot(axes, cell, rows[cell.name])
    for beside, family in (("copies", BARE), ("torch-objects", TORCH)):
        found = results.find(beside, payload)
        if found and found.ms:
            axes.axvline(found.ms, color=COLOURS[family], ls=":", lw=1, zorder=0)
    slowest, fastest = max(cell.ms or 0 for cell in cells), min(cell.ms or 0 for cell in cells)
    axes.set_xscale("log")
    decades = max(1.0, (slowest / fastest) ** 0.25)
    axes.set_xlim(fastest / 1.6, slowest * min(10**SPARED_DECADES, 2.5 * decades))
    axes.set_title(payload, fontsize=11, fontweight="bold")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,g}".replace(",", " ")))
    axes.grid(axis="y", color="#eeeeee")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _dot(axes: Axes, cell: Cell, row: int) -> None:
    ms = cell.ms
    assert ms is not None
    colour = COLOURS[cell.family]
    all_ms = [each.ms for each in cell.repetitions]
    axes.plot([min(all_ms), max(all_ms)], [row, row], color=colour, lw=1.2, alpha=0.5, solid_capstyle="butt")
    axes.plot([ms], [row], color=colour, marker="o", ms=5)
    shown = f"{ms:,.0f}".replace(",", " ") if ms >= 10 else f"{ms:.2g}"
    place = (max(ms, *all_ms), row)
    text = axes.annotate(shown, place, (5, 0), textcoords="offset points", va="center", fontsize=8, color=colour)
    text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # over the lines of the limits
