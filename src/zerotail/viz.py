"""Pictures of attention: what is selected is marked, what has weight zero is not.

Needs NumPy alone; figures need matplotlib: `pip install "zerotail[paper]"`.
"""

from __future__ import annotations

import dataclasses
import html
import typing
from collections import abc
from typing import TYPE_CHECKING

import numpy as np

from . import _check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

__all__ = ["Attention", "attention"]

_FAINTEST, _STRONGEST = (255, 236, 214), (247, 148, 29)
"""The shades of the smallest weight that is not zero, and of the largest: dark words can be read on both."""


def _shade(strength: float) -> str:
    parts = (a + strength * (b - a) for a, b in zip(_FAINTEST, _STRONGEST, strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Attention:
    """What `attention` returns: a view that Jupyter shows, as HTML or as a figure.

    Parameters
    ----------
    tokens : tuple of str
        The words.
    weights : ndarray
        One weight a word, (tokens,) or (queries, tokens).
    queries : tuple of str, optional
        What stands in front of each row of a matrix.

    Examples
    --------
    >>> view = attention(["a", "yellow", "club"], [0.0, 0.75, 0.25])
    >>> view.weights
    array([0.  , 0.75, 0.25])
    """

    tokens: tuple[str, ...]
    weights: NDArray[np.float64]
    queries: tuple[str, ...] | None = None

    def html(self) -> str:
        """One paragraph of HTML, or one table with a row for each query.

        Words of weight zero are plain text; the others are bold, shaded by weight, and show it to the mouse.
        """
        rows = np.atleast_2d(self.weights)
        largest = rows.max(initial=0.0)
        lines = [" ".join(map(_word, self.tokens, row / (largest or 1), row)) for row in rows]
        if self.weights.ndim == 1:
            return f"<p>{lines[0]}</p>"
        names = self.queries or tuple(map(str, range(len(rows))))
        body = "\n".join(
            f'<tr><th scope="row" style="text-align:right">{html.escape(name)}</th>'
            f'<td style="text-align:left">{line}</td></tr>'
            for name, line in zip(names, lines, strict=True)
        )
        return f"<table>\n{body}\n</table>"

    def _repr_html_(self) -> str:
        return self.html()

    def figure(self, ax: Axes | None = None) -> Figure | SubFigure:
        """Draw the weights as a matrix, a row for each query; cells of weight zero are left blank.

        On `ax`, or on a new matplotlib figure, which belongs to no window and has `savefig`.
        """
        matplotlib = _check.extra("matplotlib", "paper", "figure")
        from matplotlib import figure as figures

        rows = np.atleast_2d(self.weights)
        if ax is None:
            made = figures.Figure(
                figsize=(1.6 + 0.45 * rows.shape[1], 1.2 + 0.35 * len(rows)), layout="constrained"
            )
            ax = made.subplots()
        shades = matplotlib.colors.LinearSegmentedColormap.from_list("", [_shade(0), _shade(1)])
        image = ax.imshow(np.ma.masked_equal(rows, 0), cmap=shades, vmin=0, vmax=rows.max(initial=0) or 1)
        ax.set_aspect("auto")
        slanted: dict[str, typing.Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        # A dollar is a dollar: no mathematics.
        ax.set_xticks(range(rows.shape[1]), self.tokens, parse_math=False, **slanted)
        names = self.queries or (("",) if self.weights.ndim == 1 else tuple(map(str, range(len(rows)))))
        ax.set_yticks(range(len(rows)), names, parse_math=False)
        ax.set_xticks(np.arange(rows.shape[1] + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="0.85", linewidth=0.8)
        ax.tick_params(which="both", length=0)
        ax.figure.colorbar(image, ax=ax, label="weight")
        return ax.figure


def _word(token: str, strength: float, weight: float) -> str:
    word = html.escape(token)
    if weight == 0:
        return word
    style = f"background:{_shade(strength)};color:#000;font-weight:bold;border-radius:3px;padding:0 2px"
    return f'<span style="{style}" title="{weight:.4g}">{word}</span>'


def attention(
    tokens: abc.Iterable[str], weights: typing.Any, queries: abc.Iterable[str] | None = None
) -> Attention:
    """Show which tokens attention selects: those of weight zero unmarked, the others shaded by weight.

    Parameters
    ----------
    tokens : iterable of str
        The words, of one sequence.
    weights : array_like or tensor
        Nonnegative: a weight for each token, or a matrix with a row for each query. A tensor may need a
        gradient, and lie on any device.
    queries : iterable of str, optional
        The words that attend, one for each row of a matrix; its number by default.

    Returns
    -------
    Attention
        Jupyter shows it as HTML; `.html()` is that, and `.figure()` the matrix as a matplotlib figure.

    Examples
    --------
    >>> view = attention(["a", "yellow", "club"], [0.0, 0.75, 0.25])
    >>> view.html()[:13]
    '<p>a <span st'
    """
    words = _check.tokens(tokens, "tokens")
    array = _check.attention_weights(weights, len(words))
    names = None if queries is None else _check.tokens(queries, "queries")
    if names is not None:
        _check.queries(names, array.shape)
    return Attention(words, array, names)
