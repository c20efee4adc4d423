"""Views of attention: what has weight zero is plain, what is selected is marked."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import zerotail as zt
from zerotail import viz

TOKENS = ["A", "<b>boy</b>", "rides", "&", "on", "“camel”"]


class Reader(HTMLParser):
    """The words of the page: which are marked, with what shade and title; and that every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.text, self.marked = "", []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1][0] == "span":
            style = self.open[-1][1]
            shade = re.search("background:#(..)(..)(..)", style["style"]).groups()
            self.marked.append((data, style["title"], tuple(int(x, 16) for x in shade)))


def test_words_of_weight_zero_are_plain_and_others_shaded_by_weight():
    """However small a weight is, it is not zero; the heavier, the darker; no token is read as HTML."""
    view = viz.attention(TOKENS, [0, 0.5, 0, 1e-30, 0.125, 0.375])
    page = Reader(view.html())
    assert page.text == " ".join(TOKENS)
    assert [word for word, *_ in page.marked] == ["<b>boy</b>", "&", "on", "“camel”"]
    assert [title for _, title, _ in page.marked] == ["0.5", "1e-30", "0.125", "0.375"]
    shades = {title: shade[2] for _, title, shade in page.marked}
    assert shades["0.5"] < shades["0.375"] < shades["0.125"] < shades["1e-30"] < 255
    assert view._repr_html_() == view.html()


def test_what_sparsemax_selects_is_what_is_marked():
    """A matrix is a table with a row for each query."""
    p = zt.sparsemax(np.random.default_rng(0).normal(0, 1, (3, len(TOKENS))))
    view = viz.attention(TOKENS, p, queries=["x", "<y>", "z"])
    rows = view.html().split("<tr>")[1:]
    for row, weights, name in zip(rows, p, ["x", "<y>", "z"], strict=True):
        page = Reader("<table><tr>" + row.replace("</table>", "") + "</table>")
        assert page.text.startswith(name)
        assert [word for word, *_ in page.marked] == [
            t for t, w in zip(TOKENS, weights, strict=True) if w > 0
        ]
    Reader(view.html())
    assert "<th" in viz.attention(TOKENS, p).html()


def test_all_zeros_and_no_words_are_views_too():
    """A row that its mask emptied has no mark."""
    assert not Reader(viz.attention(["a", "b"], [0, 0]).html()).marked
    assert Reader(viz.attention([], []).html()).text == ""


@pytest.mark.parametrize("queries", [None, ["x", "y"]])
def test_the_figure_has_a_cell_for_each_weight_and_leaves_zeros_blank(queries, tmp_path):
    """As a matplotlib figure of a matrix, or of one row; alone, or where the caller draws."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    weights = np.array([[0, 0.25, 0.75], [1, 0, 0]])[: 1 if queries is None else 2]
    view = viz.attention(["a", "b", "c"], weights[0] if queries is None else weights, queries)
    figure = view.figure()
    figure.savefig(tmp_path / "attention.png")
    assert (tmp_path / "attention.png").stat().st_size > 1000
    axes = figure.axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), weights == 0)
    np.testing.assert_array_equal(image.get_array().filled(0), weights)
    colours = image.cmap(image.norm(image.get_array()))
    assert (colours[..., 3] == (weights > 0)).all()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_yticklabels()] == (queries or [""])
    view = viz.attention(["$5", "a$b$c", "$\\frac$"], weights[0], None)
    view.figure().savefig(tmp_path / "dollars.png")
    assert not any(label.get_parse_math() for label in view.figure().axes[0].get_xticklabels())
    mine = Figure()
    assert view.figure(mine.subplots()) is mine


def test_words_may_come_from_any_iterable():
    """They are read once."""
    view = viz.attention((word for word in "abc"), [[1, 0, 0], [0, 1, 0]], iter(["x", "y"]))
    assert (view.tokens, view.queries) == (("a", "b", "c"), ("x", "y"))


def test_weights_may_be_tensors():
    """Of any floating type, also where a gradient is needed; what is kept is a copy in float64."""
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16):
        weights = torch.tensor([0.75, 0.25, 0.0], dtype=dtype, requires_grad=True)
        view = viz.attention(["a", "b", "c"], weights)
        assert view.weights.dtype == np.float64
        assert view.weights.tolist() == [0.75, 0.25, 0]
    array = np.array([1.0, 0.0])
    view = viz.attention(["a", "b"], array)
    array[:] = 7
    assert view.weights.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda: viz.attention("ab", [1, 0]),
            TypeError,
            "tokens must be a sequence of strings; got one string, 'ab'",
        ),
        (
            lambda: viz.attention(["a", 3], [1, 0]),
            TypeError,
            "tokens must be a sequence of strings; got 3 in it",
        ),
        (lambda: viz.attention(3, [1]), TypeError, "tokens must be a sequence of strings; got int"),
        (
            lambda: viz.attention(["a"], [1, 0]),
            ValueError,
            r"weights must have one number.* 1 tokens.*\(2,\)",
        ),
        (lambda: viz.attention(["a"], [[[1]]]), ValueError, r"weights must have one number.*\(1, 1, 1\)"),
        (
            lambda: viz.attention(["a", "b"], [1, -0.5]),
            ValueError,
            "weights must be nonnegative and finite; got -0.5",
        ),
        (lambda: viz.attention(["a", "b"], [1, np.nan]), ValueError, "weights must be nonnegative.*nan"),
        (lambda: viz.attention(["a"], ["x"]), TypeError, "weights must be numbers"),
        (
            lambda: viz.attention(["a"], [1], ["q"]),
            ValueError,
            "queries must be None where weights are one row",
        ),
        (lambda: viz.attention(["a"], [[1]], ["q", "r"]), ValueError, "queries must be as many.*1; got 2"),
        (
            lambda: viz.attention(["a"], [[1]], "q"),
            TypeError,
            "queries must be a sequence of strings; got one",
        ),
    ],
)
def test_a_mistake_is_named(call, kind, words):
    """Argument, requirement, value."""
    with pytest.raises(kind, match=words):
        call()
