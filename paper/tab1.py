"""Table 1: how large the five data sets are.

Command: ``python -m paper tab1``. It takes seconds, and needs the data:
``python -m zerotail.datasets fetch all``.

What to expect: the paper's numbers where the data are the paper's; a sentence for each difference. The
columns on the right are additions.

Deviations: for CAL500, which has no official split, the paper's sizes of 400 and 100 are what table 2 draws
at random; counted are all examples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from paper import _data
from paper._report import Beside, Page, Table
from paper._run import Cell

TITLE = "Table 1: the data sets of multi-label classification"
ADDRESSES = {"Reuters": "libsvm's site"}
# Why a number may differ from the paper's, by data set and column.
REASONS = {
    ("Emotions", "train"): "Mulan's split has 391 and 202 of the 593 examples; 393 and 202 would be 595.",
    ("Birds", "train"): "Mulan's split has 322 and 323; the paper's table has them the other way round.",
    ("Birds", "test"): "As for the training part. Both counts include the examples without labels that the "
    "paper's text says were removed: without them it is {train_labelled} and {test_labelled}.",
    (
        "CAL500",
        "train",
    ): "All 502 examples; no split is published. The paper has 400 and 100: two are left out, "
    "and which is unknown.",
    ("CAL500", "test"): "As for the training part.",
    ("Reuters", "labels"): "Of the 103 topics, {labels} occur in libsvm's files.",
    ("Reuters", "train"): "The folder has a part of the original's documents.",
    ("Reuters", "test"): "As for the training part.",
}


@dataclass(frozen=True)
class Settings:
    datasets: tuple[str, ...] = _data.DATASETS


SMOKE = Settings()


def count(dataset: str, digest: str) -> dict[str, Any]:
    bunch = _data.load(dataset)
    sizes = np.asarray(bunch.Y.sum(axis=1)).ravel()
    return {
        "labels": bunch.Y.shape[1],
        "train": len(bunch.train),
        "test": len(bunch.test),
        "features": bunch.X.shape[1],
        "train_labelled": int((sizes[bunch.train] > 0).sum()),
        "test_labelled": int((sizes[bunch.test] > 0).sum()),
        "labels_per_example": float(sizes[sizes > 0].mean()),
    }


def cells(settings: Settings) -> list[Cell]:
    return [Cell(name, count, {"dataset": name, "digest": _data.digest(name)}) for name in settings.datasets]


def render(settings: Settings, results: dict[str, Any], page: Page) -> None:
    rows, notes = [], []
    for name, found in results.items():
        paper = page.published[name]
        rows.append(
            [name]
            + [
                Beside(found[column], number, far=0, digits=0)
                for column, number in zip(("labels", "train", "test"), paper, strict=True)
            ]
            + [
                found["features"],
                found["train_labelled"],
                found["test_labelled"],
                found["labels_per_example"],
            ]
        )
        for column, number in zip(("labels", "train", "test"), paper, strict=True):
            if found[column] != number:
                why = REASONS.get((name, column), "Not explained.").format(**found)
                notes.append(f"{name}, {column}, {found[column]} and not {number}: {why}")
    columns = [
        "Data set",
        "Labels",
        "Train",
        "Test",
        "Features",
        "Train, labelled",
        "Test, labelled",
        "Labels each",
    ]
    page.table("tab1", Table(columns, rows, "Ours beside the paper's; marked where they differ."))
    page.text("")
    for note in notes:
        page.text(note)
