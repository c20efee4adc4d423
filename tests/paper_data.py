"""Small files in the formats of the paper's data, drawn at random: every loader and artefact runs on them."""

from __future__ import annotations

import bz2
import os
from pathlib import Path

import numpy as np
import pytest

from tests import small_snli
from zerotail.datasets import __main__ as command

SIZES = {"scene": (6, 40, 30), "emotions": (6, 40, 30), "birds": (7, 40, 30), "cal500": (11, 60, 0)}
FEATURES = 13


def originals(*names: str) -> Path:
    """The folder of ZEROTAIL_DATA; the test is skipped where it lacks one of these: no test downloads."""
    folder = os.environ.get("ZEROTAIL_DATA")
    if not folder:
        pytest.skip("ZEROTAIL_DATA names no folder")
    files = {entry.name: entry.files for module in command.MODULES for entry in module.ENTRIES}
    for name in names:
        try:
            files[name](data_home=folder, download_if_missing=False)
        except FileNotFoundError as error:
            pytest.skip(str(error))
    return Path(folder)


def _rows(rng: np.random.Generator, count: int, labels: int, empty: float) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((count, FEATURES)).round(3)
    Y = (X @ rng.standard_normal((FEATURES, labels)) > 2).astype(int)
    bare = Y.sum(axis=1) == 0
    Y[bare, rng.integers(labels, size=int(bare.sum()))] = 1
    Y[rng.uniform(size=count) < empty] = 0
    return X, Y


def arff(X: np.ndarray, Y: np.ndarray, nominal: bool = False) -> str:
    lines = ["@relation made", *(f"@attribute f{i} numeric" for i in range(X.shape[1]))]
    lines += ["@attribute place {7,2,5}"] * nominal
    lines += [rf"@attribute 'Label\'s {k}' {{0,1}}" for k in range(Y.shape[1])]
    lines.append("@data")
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        lines.append(",".join([*map(str, x), *["7", "2", "5"][i % 3 : i % 3 + 1] * nominal, *map(str, y)]))
    return "\n".join(lines) + "\n"


def xml(labels: int) -> str:
    names = "\n".join(f'<label name="Label\'s {k}"></label>' for k in range(labels))
    return (
        f'<?xml version="1.0"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n{names}\n</labels>\n'
    )


def make(folder: Path, seed: int = 0) -> Path:
    """A data folder: mulan, rcv1, snli_1.0 and glove."""
    rng = np.random.default_rng(seed)
    for name, (labels, train, test) in SIZES.items():
        home = folder / "mulan" / name
        home.mkdir(parents=True)
        (home / f"{name}.xml").write_text(xml(labels))
        for part, count in (("-train", train), ("-test", test)) if test else (("", train),):
            X, Y = _rows(rng, count, labels, 0.2 if name == "birds" else 0)
            (home / f"{name}{part}.arff").write_text(arff(X, Y, name == "birds"))
    (folder / "rcv1").mkdir()
    for part, count in (("train", 50), ("test", 30)):
        X, Y = _rows(rng, count, 5, 0)
        lines = [
            ",".join(str(k) for k in np.flatnonzero(y))
            + "".join(f" {i + 1}:{abs(v)}" for i, v in enumerate(x) if v)
            for x, y in zip(X, Y, strict=True)
        ]
        text = "\n".join(lines) + "\n"
        (folder / "rcv1" / f"rcv1_topics_made_{part}.svm.bz2").write_bytes(bz2.compress(text.encode()))
    return small_snli.write(folder)
