"""The artefacts of the paper: each one runs, on small data of the same formats, and nothing runs twice."""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for needed in ("matplotlib", "sklearn", "arff", "joblib"):
    pytest.importorskip(needed)

from paper import __main__ as command  # noqa: E402 - needs what was looked for
from paper import _data, _report, _run, fig1, fig2, fig3, tab2  # noqa: E402
from tests import paper_data  # noqa: E402

ARTEFACTS = [*command.artefacts(), "bundled"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paper_data.make(tmp_path_factory.mktemp("data"))


@pytest.fixture
def made(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The small data, for as long as the test runs."""
    monkeypatch.setenv("ZEROTAIL_DATA", str(data))
    yield data
    _data.load.cache_clear()
    _data.digest.cache_clear()


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_runs_and_what_ran_is_not_run_again(name, made, tmp_path, monkeypatch, capsys):
    """A smoke run: text, JSON, CSV or PNG and PDF, and a section of the report. The second one only reads."""
    run = [name, "--smoke", "--jobs", "1", "--out", str(tmp_path)]
    assert command.main(run) == 0
    first = capsys.readouterr().out
    out = tmp_path / "smoke"
    told = json.loads((out / f"{name}.json").read_text())
    assert told["artefact"] == name
    assert told["smoke"] is True
    assert told["versions"]["zerotail"]
    shown = {path.suffix for path in out.glob(f"{name}*")}
    assert ".csv" in shown or {".png", ".pdf"} <= shown
    report = (out / "report.html").read_text()
    assert f"<section id={name}>" in report
    assert "smoke run" in report
    assert f"python -m paper {name}" in report
    for address in re.findall(r'(?:src|href)="?([^" >]+)', report):
        assert address.startswith(("data:", "#")), "the report must need no other file"
    assert str(out / "report.html") in first

    monkeypatch.setattr(_run, "compute", lambda *_: pytest.fail("computed again"))
    assert command.main(run) == 0
    seconds = re.compile(r"\d+ s;|[\d.]+ minutes")
    assert seconds.sub("", capsys.readouterr().out) == seconds.sub("", first)


def test_one_report_holds_what_was_made_in_any_order(tmp_path):
    for name in ("fig2", "fig1"):
        assert command.main([name, "--smoke", "--out", str(tmp_path)]) == 0
    report = (tmp_path / "smoke/report.html").read_text()
    assert 0 < report.index("<section id=fig1>") < report.index("<section id=fig2>")


# ---- cells


def square(value: int, log: str) -> int:
    with open(log, "a") as file:
        file.write(f"{value}\n")
    if value == 3 and not os.path.exists(f"{log}.allowed"):
        raise KeyboardInterrupt
    return value**2


def stepwise(scratch: Path, log: str) -> list[str]:
    """Two steps, a kill between them."""
    first = scratch / "first"
    if not first.exists():
        first.write_text("done")
        raise KeyboardInterrupt
    with open(log, "a") as file:
        file.write("second\n")
    return [first.read_text(), "second"]


def squares(log: Path, values: list[int]) -> list[_run.Cell]:
    return [_run.Cell(f"cell {v}", square, {"value": v, "log": str(log)}) for v in values]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_continues_where_it_was(tmp_path, jobs):
    """What was done is kept; only the rest is computed; the order is that of the cells."""
    log, cache = tmp_path / "log", tmp_path / "cache"
    cells = squares(log, [1, 2, 3, 4])
    with pytest.raises(KeyboardInterrupt):
        _run.run("x", cells, cache, 1, True, False)
    assert log.read_text().split() == ["1", "2", "3"]
    (tmp_path / "log.allowed").touch()
    found = _run.run("x", cells, cache, jobs, True, False)
    assert [result["value"] for result in found.values()] == [1, 4, 9, 16]
    assert list(found) == [cell.name for cell in cells]
    assert sorted(log.read_text().split()) == ["1", "2", "3", "3", "4"]
    assert not [path for path in cache.iterdir() if path.suffix != ".json"]
    _run.run("x", cells[:1], cache, 1, True, True)
    assert log.read_text().split().count("1") == 2, "--fresh computes again"


def test_a_cell_finds_what_it_left_when_it_was_killed(tmp_path):
    """`scratch` outlives the kill and goes when the cell is done."""
    cell = _run.Cell("steps", stepwise, {"log": str(tmp_path / "log")})
    with pytest.raises(KeyboardInterrupt):
        _run.run("x", [cell], tmp_path / "cache", 1, False, False)
    found = _run.run("x", [cell], tmp_path / "cache", 1, False, False)
    assert found["steps"]["value"] == ["done", "second"]
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".json"]


def test_other_settings_are_another_cell(tmp_path):
    """By the arguments and the function, whatever the cell is called. A damaged file is computed again."""
    cell = _run.Cell("a", square, {"value": 1, "log": "x"})
    assert cell.key() == _run.Cell("b", square, {"log": "x", "value": 1}).key()
    assert cell.key() != _run.Cell("a", square, {"value": 2, "log": "x"}).key()
    assert cell.key() != _run.Cell("a", stepwise, {"value": 1, "log": "x"}).key()
    cells = squares(tmp_path / "log", [1])
    _run.run("x", cells, tmp_path, 1, True, False)
    (tmp_path / f"{cells[0].key()}.json").write_text('{"value":')
    assert _run.run("x", cells, tmp_path, 1, True, False)["cell 1"]["value"] == 1


def test_two_cells_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cells must have different names"):
        _run.run("x", squares(tmp_path / "log", [1, 1]), tmp_path, 1, True, False)


# ---- the report


def test_a_difference_is_marked_from_where_the_table_says(tmp_path):
    """In text and HTML; the CSV has ours and the paper's apart."""
    page = _report.Page("tab9", "Table 9", tmp_path)
    cells = [_report.Beside(70.0, 71.5), _report.Beside(70.0, 71.6), _report.Beside(70.004, 70.0)]
    page.table("tab9", _report.Table(["x", "far"], [[str(i), cell] for i, cell in enumerate(cells)]))
    assert [line.split()[-1] for line in page.lines if "(" in line] == ["(71.50)", "(71.60)!", "(70.00)"]
    assert page.parts[0].count('class="n far"') == 1
    assert page.parts[0].count('class="n same"') == 1
    rows = list(csv.DictReader((tmp_path / "tab9.csv").read_text().splitlines()))
    assert [row["far (paper)"] for row in rows] == ["71.5", "71.6", "70.0"]
    assert [row["far (ours)"] for row in rows] == ["70.0", "70.0", "70.004"]


def test_what_is_written_into_the_report_is_not_markup(tmp_path):
    page = _report.Page("tab9", "<b>", tmp_path)
    page.text("<script>")
    page.table("tab9", _report.Table(["<i>"], [["<u>"]], "<s>"))
    page.finish({"a": "<em>"}, {}, False)
    section = (tmp_path / "sections/tab9.html").read_text()
    for tag in ("<b>", "<script>", "<i>", "<u>", "<s>", "<em>"):
        assert tag not in section


# ---- the command


def test_without_the_data_the_rest_is_done_and_the_status_says_so(tmp_path, monkeypatch, capsys):
    """A missing data set is a sentence and not a traceback."""

    def missing(name: str, nominal: str = "number") -> Any:
        raise FileNotFoundError(f"{name} must be somewhere; got no such file")

    monkeypatch.setattr(_data, "load", missing)
    _data.digest.cache_clear()
    assert command.main(["tab1", "fig2", "--smoke", "--jobs", "1", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "tab1 needs data: Scene must be somewhere" in said.err
    assert "<section id=fig2>" in (tmp_path / "smoke/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tab7"], "NAME must be fig1, fig2, fig3, tab1, tab2"),
        (["fig3", "--jobs", "0"], "--jobs must be at least 1; got 0"),
        (["fig3", "fig2", "--set", "draws=1"], "--set must come with one artefact"),
        (["fig3", "--set", "draw=1"], "--set must be NAME=VALUE with a name of alphas, "),
        (["fig3", "--set", "draws=many"], "--set draws must be like 3; got many"),
    ],
)
def test_a_bad_argument_is_named(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([*arguments, "--out", str(tmp_path)])
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_setting_can_be_changed(tmp_path):
    assert command.main(["fig1", "--set", "points=25", "--set", "dpi=40", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "fig1.json").read_text())["settings"]["points"] == 25


def test_the_list_names_every_artefact(capsys):
    assert command.main([]) == 0
    said = capsys.readouterr().out
    for name in command.artefacts():
        assert re.search(rf"^{name} +(Figure|Table) {name[3:]}: ", said, re.M)


# ---- what the artefacts say


def test_the_defaults_are_the_papers():
    """Section 4.1 and 4.2, setting by setting."""
    assert fig3.Settings().labels == (10, 50)
    assert (fig3.Settings().train, fig3.Settings().test) == (1200, 1000)
    assert fig3.Settings().lengths == tuple(range(200, 2001, 200))
    assert np.allclose(fig3.Settings().alphas, 10.0 ** np.arange(-9, 1))
    assert np.allclose(tab2.Settings().alphas, 10.0 ** np.arange(-8, 3))
    assert np.allclose(tab2.rules("logistic", 6)["thresholds"], 0.05 * np.arange(1, 11))
    assert np.allclose(tab2.rules("softmax", 6)["thresholds"], np.arange(1, 7) / 6)
    assert np.allclose(tab2.rules("softmax", 174)["thresholds"], np.arange(1, 11) / 174)
    assert np.allclose(tab2.rules("sparsemax", 6)["scales"], 0.5 * np.arange(1, 11))


def test_figure_1_is_the_sigmoid_and_the_ramp():
    """Eq. 6."""
    t = np.array([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0])
    assert np.allclose(fig1.curve(fig1.MAPS["softmax"], t), 1 / (1 + np.exp(-t)))
    assert np.array_equal(fig1.curve(fig1.MAPS["sparsemax"], t), [0, 0, 0.5, 0.75, 1, 1])
    assert fig1.surface(fig1.MAPS["sparsemax"], np.array([2.0]), np.array([0.5])) == 1


@pytest.mark.parametrize("name", ["hinge", "logistic", "sparsemax"])
def test_figure_2_shows_losses_beside_their_slopes(name):
    """Where a loss has no kink, the slope is the difference quotient. Eq. 23 at three margins."""
    loss, slope = fig2.LOSSES[name]
    t = np.array([-2.3, -0.4, 0.7, 1.9])
    assert np.allclose((loss(t + 1e-6) - loss(t - 1e-6)) / 2e-6, slope(t), atol=1e-6)
    if name == "sparsemax":
        assert np.array_equal(loss(np.array([-2.0, 0.0, 1.0])), [2.0, 0.25, 0.0])


def test_folds_are_blocks_in_the_order_of_the_file():
    """Of ceil(n / 5) examples, the last one shorter."""
    folds = tab2.blocks(13, 5)
    assert [held.tolist() for _, held in folds] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12]]
    for train, held in folds:
        assert sorted([*train, *held]) == list(range(13))


def test_constant_features_are_left_alone():
    train, test = tab2.standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[5.0, 6.0]]))
    assert train.tolist() == [[-1, 5], [1, 5]]
    assert test.tolist() == [[3, 6]]


def test_reuters_decisions_are_the_estimators(made):
    """One fit serves all rules: the decisions are those of `SparsemaxClassifier.predict`."""
    from zerotail.sklearn import SparsemaxClassifier

    bunch = _data.load("Emotions")
    X, Y = bunch.X, bunch.Y.astype(int)
    for loss in tab2.LOSSES:
        ((name, values),) = tab2.rules(loss, Y.shape[1]).items()
        for value in values:
            model = SparsemaxClassifier(loss, 0.1, **{name.removesuffix("s"): value}).fit(X, Y)
            assert np.array_equal(tab2.decide(loss, model.decision_function(X), value), model.predict(X))


def test_the_scores_are_the_metrics_of_the_package():
    """All three, with labels that are never true, or never said."""
    from zerotail.sklearn import metrics

    rng = np.random.default_rng(0)
    Y, on = (rng.uniform(size=(2, 50, 7)) < 0.3).astype(int)
    Y[:, 2], on[:, 3], Y[:, 5], on[:, 5] = 0, 0, 0, 0
    for wanted, said in ((Y, on), (Y, 0 * on), (0 * Y, 0 * on)):
        found = tab2.f1(wanted, said)
        assert found["micro"] == pytest.approx(100 * metrics.micro_f1(wanted, said))
        assert found["macro"] == pytest.approx(100 * metrics.macro_f1_of_averages(wanted, said))
        assert found["mean"] == pytest.approx(100 * metrics.macro_f1(wanted, said))


def test_table_1_is_the_papers_where_the_data_are():
    """Labels, training and test examples of Mulan's data."""
    paper_data.originals("scene", "emotions", "birds", "cal500")
    counts = {name: tab1_counts(name) for name in ("Scene", "Emotions", "Birds", "CAL500")}
    assert counts == {
        "Scene": (6, 1211, 1196),
        "Emotions": (6, 391, 202),
        "Birds": (19, 322, 323),
        "CAL500": (174, 502, 0),
    }


def tab1_counts(name: str) -> tuple[int, int, int]:
    bunch = _data.load(name)
    return bunch.Y.shape[1], len(bunch.train), len(bunch.test)


def test_table_2_is_the_papers_to_the_second_decimal_on_emotions(tmp_path):
    """All six cells, by the authors' protocol: loss, optimiser, features, folds and metric are right."""
    paper_data.originals("emotions")
    published = tomllib.loads((command.HERE / "published.toml").read_text())["tab2"]["Emotions"]
    settings = tab2.Settings(datasets=("Emotions",), shuffles=0)
    cells = [cell for cell in tab2.cells(settings) if "contiguous" in cell.name]
    results = {name: kept["value"] for name, kept in _run.run("", cells, tmp_path, 1, True, False).items()}
    for loss in tab2.LOSSES:
        for measure, paper in zip(("micro", "macro"), published[loss], strict=True):
            (ours,) = tab2.values(results, "Emotions", loss, "as the code", measure, settings)
            assert round(ours, 2) == paper, (loss, measure)
