"""Figure 2: the sparsemax loss for two classes, beside other losses.

Command: ``python -m paper fig2``. It takes seconds and writes ``fig2.png`` and ``fig2.pdf``.

What to expect: as functions of the margin t, the score of the right class less that of the other, the
sparsemax loss (Eq. 23) is a parabola between two lines. Like the hinge loss it is 0 from t = 1 on, like the
logistic loss it is smooth: its slope, on the right, is minus the probability of the wrong class.

Deviations: which other losses the paper's figure shows is not in its text; those below are ours. The second
panel, the slopes, is an addition.
"""

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

import zerotail as zt
from paper._report import COLORS, Page
from paper._run import Cell

TITLE = "Figure 2: the sparsemax loss for two classes"


@dataclass(frozen=True)
class Settings:
    limit: float = 3.0  # margins run over [-limit, limit]
    points: int = 601
    dpi: int = 160


SMOKE = Settings(points=25, dpi=40)

Curve = Callable[[np.ndarray], np.ndarray]
# The loss of the margin, and its slope.
LOSSES: dict[str, tuple[Curve, Curve]] = {
    "zero-one": (lambda t: np.where(t > 0, 0.0, 1.0), lambda t: np.zeros_like(t)),
    "hinge": (lambda t: np.maximum(1 - t, 0), lambda t: np.where(t < 1, -1.0, 0.0)),
    "logistic": (lambda t: np.logaddexp(0, -t), lambda t: -expit(-t)),
    "sparsemax": (lambda t: zt.binary_sparsemax_loss(t, 1), lambda t: zt.binary_sparsemax(t) - 1),
}
STYLES = {
    "zero-one": {"color": "0.6", "linestyle": ":"},
    "hinge": {"color": "#8a3b8f", "linestyle": "-."},
    "logistic": {"color": COLORS["softmax"], "linestyle": "--"},
    "sparsemax": {"color": COLORS["sparsemax"], "linewidth": 2.4},
}


def figure(settings: Settings) -> Figure:
    t = np.linspace(-settings.limit, settings.limit, settings.points)
    fig, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for axes, which, title in zip(panels, (0, 1), ("Loss", "Slope"), strict=True):
        for name, curves in LOSSES.items():
            if name == "zero-one" and which:
                continue
            axes.plot(t, curves[which](t), label=name, **STYLES[name])
        axes.set(xlabel="$t$", title=title, xlim=(t[0], t[-1]))
        axes.grid(color="0.88", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    return fig


def cells(settings: Settings) -> list[Cell]:
    """Nothing is worth keeping."""
    return []


def render(settings: Settings, results: dict[str, object], page: Page) -> None:
    page.figure(
        "fig2",
        figure(settings),
        "Losses of the margin t, and their slopes. The sparsemax loss is Huber's loss for classification.",
        settings.dpi,
    )
