"""Tables 3 and 4: from files to a report, on a small SNLI and a small GloVe."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("joblib")
pytest.importorskip("matplotlib")

from paper import __main__ as paper
from paper import _run, _snli, tab3, tab4
from tests import paper_data, small_snli


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_snli.write(tmp_path_factory.mktemp("snli") / "data")


def make(data: Path, out: Path, *names: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROTAIL_DATA", "")  # --data changes it
        _snli.load.cache_clear()
        return paper.main([*names, "--smoke", "--data", str(data), "--out", str(out), "--jobs", "1"])


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a smoke run of both."""
    out = tmp_path_factory.mktemp("results")
    assert make(data, out, "tab3", "tab4") == 0
    return out


def test_a_smoke_run_makes_both_tables(made):
    """Every system's accuracy beside the paper's, the tuning, the words, and the shares that are selected."""
    table = (made / "smoke" / "tab3.csv").read_text(encoding="utf-8").splitlines()
    assert table[0].startswith("System,Dev (ours),Dev (paper),Test (ours),Test (paper)")
    assert [line.split(",")[0] for line in table[1:]] == list(tab3.NAMES.values())
    assert [line.split(",")[4] for line in table[1:]] == ["80.99", "80.84", "82.08", "82.2"]
    assert len((made / "smoke" / "tab3_l2.csv").read_text(encoding="utf-8").splitlines()) == 3
    shares = (made / "smoke" / "tab4_selected.csv").read_text(encoding="utf-8").splitlines()[1:]
    selected = {line.split(",")[0]: float(line.split(",")[1]) for line in shares}
    assert selected["SoftAttention"] == selected["LogisticAttention"] == 100
    assert 0 < selected["SparseAttention"] < 100
    report = (made / "smoke" / "report.html").read_text(encoding="utf-8")
    for words in ("rides", "SparseAttention, seed 0", "A girl is wearing a blue jacket."):
        assert words in report


def test_what_table_4_marks_are_the_words_of_weight_above_zero(made):
    """In the table and in the picture, and weights are those of the words, one each."""
    results = json.loads((made / "smoke" / "tab4.json").read_text(encoding="utf-8"))["results"]
    section = (made / "smoke" / "sections" / "tab4.html").read_text(encoding="utf-8")
    examples = results["sparse 0"]["value"]["examples"]
    assert len(examples["weights"]) == 4
    for (marked, _, _), weights in zip(_run.published("tab4")["pairs"], examples["weights"], strict=True):
        tokens = tab4.tokens(marked)
        assert len(tokens) == len(weights)
        assert sum(weights) == pytest.approx(1, abs=1e-5)
        chosen = [token for token, weight in zip(tokens, weights, strict=True) if weight > 0]
        assert 0 < len(chosen) < len(tokens)
        assert f",{' '.join(chosen)}\n" in (made / "smoke" / "tab4.csv").read_text(encoding="utf-8")
        plain = [re.sub("<[^>]*>", "", part) for part in re.findall(r"<span[^>]*>[^<]*</span>", section)]
        assert set(chosen) <= set(plain)


def test_a_second_run_trains_nothing(made, data, monkeypatch):
    """Neither does table 4, which shows what table 3 keeps."""

    def trained(*args: object, **options: object) -> None:
        raise AssertionError("a training")

    before = sorted(path.name for path in (made / "cache" / "tab3").iterdir())
    monkeypatch.setattr(_run, "compute", trained)
    assert make(data, made, "tab3", "tab4") == 0
    assert sorted(path.name for path in (made / "cache" / "tab3").iterdir()) == before
    assert len(before) == 6


def test_cells_depend_on_the_data(data, tmp_path, monkeypatch):
    """Other sentences, or other vectors: other cells."""
    keys = []
    for change in (None, "snli_1.0/snli_1.0_dev.jsonl", "glove/glove.small.txt"):
        folder = small_snli.write(tmp_path / f"{change}".replace("/", "_"))
        if change == "glove/glove.small.txt":
            text = (folder / change).read_text(encoding="utf-8")
            (folder / change).write_text(
                text.replace("red 0.", "red 1.", 1).replace("red -", "red ", 1), encoding="utf-8"
            )
        elif change:
            lines = (folder / change).read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / change).write_text("".join(lines[1:]), encoding="utf-8")
        monkeypatch.setenv("ZEROTAIL_DATA", str(folder))
        _snli.load.cache_clear()
        keys.append(tab3.runs(tab3.SMOKE)[0].key())
    _snli.load.cache_clear()
    assert len(set(keys)) == 3


def test_without_pytorch_they_say_what_to_install(data, tmp_path, monkeypatch, capsys):
    """The list of artefacts needs none; the tables name the extra, and the other artefacts go on."""
    for module in ("zerotail.torch", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    assert paper.main([]) == 0
    assert make(data, tmp_path, "tab3", "fig1") == 1
    captured = capsys.readouterr()
    assert "tab3: " in captured.err
    assert "torch" in captured.err
    assert (tmp_path / "smoke" / "fig1.png").is_file()


def test_the_papers_pairs_are_four_with_words_that_they_have():
    """Table 4: 3, 4, 3 and 5 words, in bold there."""
    pairs = _run.published("tab4")["pairs"]
    assert [marked.count("*") // 2 for marked, _, _ in pairs] == [3, 4, 3, 5]
    assert [label for _, _, label in pairs] == ["entailment"] + ["contradiction"] * 3


def test_the_papers_pairs_are_in_dev(snli_data):
    """With the labels that the paper gives."""
    from zerotail.datasets import fetch_snli

    dev = fetch_snli("dev", data_home=snli_data)
    known = dict(zip(dev.X, dev.Y, strict=True))
    for marked, hypothesis, label in _run.published("tab4")["pairs"]:
        assert dev.label_names[known[(marked.replace("*", ""), hypothesis)]] == label


def test_the_real_parts_have_the_sizes_that_are_known(snli_data):
    """9,842 and 9,824 pairs with a gold label; nearly all words have a vector."""
    from zerotail.datasets import fetch_snli, load_glove

    parts = {part: fetch_snli(part, data_home=snli_data) for part in ("dev", "test")}
    assert {part: len(found.X) for part, found in parts.items()} == {"dev": 9842, "test": 9824}
    assert load_glove(None, ["camel", "boy"], data_home=snli_data).vectors.shape == (2, 300)


@pytest.fixture(scope="module")
def snli_data() -> Path:
    return paper_data.originals("snli", "glove")
