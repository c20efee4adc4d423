"""Figure 1: softmax and sparsemax in two and three dimensions.

Command: ``python -m paper fig1``. It takes seconds and writes ``fig1.png`` and ``fig1.pdf``.

What to expect: on the left the first probability of (t, 0), softmax's sigmoid and sparsemax's ramp, which
is 0 below -1 and 1 above 1 (Eq. 6). Beside it the first probability of (t1, t2, 0): a smooth surface for
softmax, flat facets for sparsemax, one of them at 0 and one at 1.

Deviations: the paper's text gives neither its range of scores nor its viewpoint; those below are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from scipy.special import softmax

import zerotail as zt
from paper._report import COLORS, Page
from paper._run import Cell

TITLE = "Figure 1: softmax and sparsemax in two and three dimensions"
MAPS: dict[str, Callable[..., np.ndarray]] = {"softmax": softmax, "sparsemax": zt.sparsemax}


@dataclass(frozen=True)
class Settings:
    limit: float = 3.0  # scores run over [-limit, limit]
    points: int = 121  # a line; odd, and a multiple of 6 plus 1, so that the facets' edges lie on it
    elevation: float = 24.0
    azimuth: float = -122.0
    dpi: int = 160


SMOKE = Settings(points=25, dpi=40)


def curve(transform: Callable[..., np.ndarray], t: np.ndarray) -> np.ndarray:
    """The first probability of (t, 0)."""
    return transform(np.stack([t, np.zeros_like(t)], axis=-1), axis=-1)[..., 0]


def surface(transform: Callable[..., np.ndarray], t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
    """The first probability of (t1, t2, 0)."""
    return transform(np.stack([t1, t2, np.zeros_like(t1)], axis=-1), axis=-1)[..., 0]


def draw_curves(axes: Axes, t: np.ndarray) -> None:
    for name, style in (("softmax", "--"), ("sparsemax", "-")):
        axes.plot(
            t, curve(MAPS[name], t), style, color=COLORS[name], linewidth=2.2, label=rf"{name}$_1(t, 0)$"
        )
    axes.set(xlabel="$t$", xlim=(t[0], t[-1]), ylim=(-0.04, 1.04), yticks=np.linspace(0, 1, 5))
    axes.grid(color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", handlelength=1.8)


def draw_surface(axes: Axes3D, name: str, t: np.ndarray, settings: Settings) -> None:
    t1, t2 = np.meshgrid(t, t)
    stride = (settings.points - 1) // 24
    axes.plot_surface(
        t1,
        t2,
        surface(MAPS[name], t1, t2),
        cmap="viridis",
        vmin=0,
        vmax=1,
        rstride=stride,
        cstride=stride,
        edgecolor=(1, 1, 1, 0.35),
        linewidth=0.4,
        antialiased=True,
    )
    ticks = np.linspace(-settings.limit, settings.limit, 3)
    axes.set(xlabel="$t_1$", ylabel="$t_2$", xticks=ticks, yticks=ticks, zticks=[0, 0.5, 1], zlim=(0, 1))
    axes.set_title(rf"{name}$_1(t_1,\,t_2,\,0)$", color=COLORS[name], y=0.98)
    axes.view_init(settings.elevation, settings.azimuth)
    axes.set_box_aspect((1, 1, 0.72), zoom=1.02)


def figure(settings: Settings) -> Figure:
    t = np.linspace(-settings.limit, settings.limit, settings.points)
    fig = plt.figure(figsize=(12, 3.9))
    draw_curves(fig.add_axes((0.045, 0.14, 0.27, 0.76)), t)
    for left, name in ((0.335, "softmax"), (0.665, "sparsemax")):
        draw_surface(fig.add_axes((left, 0.02, 0.33, 0.9), projection="3d"), name, t, settings)
    return fig


def cells(settings: Settings) -> list[Cell]:
    """Nothing is worth keeping."""
    return []


def render(settings: Settings, results: dict[str, object], page: Page) -> None:
    page.figure(
        "fig1",
        figure(settings),
        "Left: the first probability of (t, 0). Middle and right: that of (t1, t2, 0). Softmax never "
        "reaches 0 or 1; sparsemax is flat there, and linear between.",
        settings.dpi,
    )
