"""SNLI: pairs of sentences, of which the first entails the second, contradicts it, or neither."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from zerotail import _check
from zerotail.datasets import _fetch
from zerotail.datasets._registry import Entry

PARTS = ("train", "dev", "test")
NAMES = ("entailment", "neutral", "contradiction")
ARCHIVE = _fetch.Remote(
    "snli_1.0.zip",
    "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
    "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
)
SOURCE = (
    "SNLI 1.0 (Bowman et al., 2015), CC BY-SA 4.0. The original has 550,152 pairs for training, 10,000 for\n"
    "development and 10,000 for testing, https://nlp.stanford.edu/projects/snli/"
)


def fetch_snli(part: str, *, data_home: _fetch.Folder = None, download_if_missing: bool = True) -> Any:
    """Load a part of SNLI: premises, hypotheses, and which of them follow.

    Needs scikit-learn, which `pip install "zerotail[datasets]"` brings.

    Parameters
    ----------
    part : {"train", "dev", "test"}
        The official split.
    data_home : path-like, optional
        The folder to read, and to download into: its part snli_1.0 holds snli_1.0_PART.jsonl (a train part
        may be a snli_1.0_train_subset.jsonl), or it holds the original, snli_1.0.zip. By default the
        environment's ZEROTAIL_DATA, which is never written to, then the cache.
    download_if_missing : bool, default True
        Whether to download what no folder has, or to raise.

    Returns
    -------
    sklearn.utils.Bunch
        `X`, a list of (premise, hypothesis); `Y`, int64 labels; `label_names`, the names of labels 0 to 2;
        `ids`, the names of the pairs; `DESCR`. Pairs without a gold label are left out.

    Raises
    ------
    ValueError
        A file is not what it must be.
    OSError
        No folder has the data, and they cannot be downloaded, or were changed.

    Examples
    --------
    >>> dev = fetch_snli("dev")                                       # doctest: +SKIP
    >>> premise, hypothesis = dev.X[1]                                # doctest: +SKIP
    >>> hypothesis, dev.label_names[dev.Y[1]]                         # doctest: +SKIP
    ('Two woman are holding packages.', 'entailment')
    """
    if part not in PARTS:
        raise ValueError(f"part must be 'train', 'dev' or 'test'; got {part!r}")
    utils = _check.extra("sklearn.utils", "datasets", "fetch_snli")
    path = _file(part, data_home, download_if_missing)
    with _fetch.open_data(path, f"snli_1.0/snli_1.0_{part}.jsonl") as stream:
        X, Y, ids, dropped = _read(stream, path)
    counts = ", ".join(f"{np.count_nonzero(label == Y)} {name}" for label, name in enumerate(NAMES))
    return utils.Bunch(
        X=X,
        Y=Y,
        label_names=list(NAMES),
        ids=ids,
        DESCR=(
            f"Natural language inference, the {part} part: pairs of English sentences.\n\n"
            f"{len(X)} pairs ({counts}); {dropped} without a gold label are left out.\n\n"
            f"Read from\n  {path}\n{SOURCE}\n"
        ),
    )


def _file(part: str, data_home: _fetch.Folder, download_if_missing: bool) -> Path:
    names = [f"snli_1.0_{part}.jsonl", *["snli_1.0_train_subset.jsonl"] * (part == "train")]
    found = _fetch.find([*(f"snli_1.0/{name}" for name in names), ARCHIVE.path], data_home)
    if found is not None and found.suffix != ".zip":
        _fetch.verify(found)
        return found
    return _fetch.fetch([ARCHIVE], data_home=data_home, download_if_missing=download_if_missing)[0]


def _read(stream: IO[bytes], path: Path) -> tuple[list[tuple[str, str]], Any, list[str], int]:
    X, Y, ids, dropped = [], [], [], 0
    labels = {name: label for label, name in enumerate(NAMES)}
    for number, line in enumerate(cast("Iterable[bytes]", stream), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:  # not UTF-8 is one too
            raise ValueError(f"{path}, line {number}, must be JSON; got {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number}, must be a JSON object; got {line[:40]!r}")
        fields = []
        for name in ("gold_label", "sentence1", "sentence2"):
            if not isinstance(record.get(name), str):
                raise ValueError(f"{path}, line {number}, must have a text {name}; got {record.get(name)!r}")
            fields.append(record[name])
        gold, premise, hypothesis = fields
        if gold == "-":
            dropped += 1
            continue
        if gold not in labels:
            raise ValueError(
                f"{path}, line {number}, must have a gold_label of {', '.join(NAMES)} or -; got {gold!r}"
            )
        X.append((premise, hypothesis))
        Y.append(labels[gold])
        ids.append(str(record.get("pairID", number)))
    if not X:
        raise ValueError(f"{path} must hold pairs with gold labels; got none")
    return X, np.array(Y, np.int64), ids, dropped


def _files(data_home: _fetch.Folder, download_if_missing: bool) -> list[Path]:
    return list(dict.fromkeys(_file(part, data_home, download_if_missing) for part in PARTS))


def _load(data_home: _fetch.Folder, download_if_missing: bool = True) -> Any:
    return fetch_snli("dev", data_home=data_home, download_if_missing=download_if_missing)


ENTRIES = (
    Entry("snli", "Sentence pairs that entail or contradict each other, SNLI 1.0", "95 MB", _files, _load),
)
