"""RCV1-v2: Reuters' news stories and their topics, in libsvm's multi-label text format."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from zerotail import _check
from zerotail.datasets import _fetch
from zerotail.datasets._registry import Entry

URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multilabel/"
FILES = {
    "train": ("rcv1_topics_train.svm.bz2",),
    "test": tuple(f"rcv1_topics_test_{i}.svm.bz2" for i in range(4)),
}
FEATURES = 47236
LABELS = 101
_ENDINGS = (".svm", ".svm.bz2", ".svm.gz", ".svm.xz", ".txt", ".txt.bz2", ".txt.gz")


def fetch_rcv1(
    subset: str = "all", *, data_home: _fetch.Folder = None, download_if_missing: bool = True
) -> Any:
    """Load Reuters' RCV1-v2 topics: tf-idf vectors of news stories, and the topics of each.

    Needs SciPy and scikit-learn, which `pip install "zerotail[datasets]"` brings. The download has the
    documents and the order of LIBSVM's site.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default "all"
        Which files are read, and downloaded.
    data_home : path-like, optional
        The folder to read, and to download into: its part rcv1 holds libsvm files (also .bz2, .gz or .xz)
        whose names begin with rcv1 and have train or test in them. The original's names win over others. By
        default the environment's ZEROTAIL_DATA, which is never written to, then the cache.
    download_if_missing : bool, default True
        Whether to download what no folder has, or to raise.

    Returns
    -------
    sklearn.utils.Bunch
        `X` (rows, 47236), a csr_array of float64; `Y` (rows, 101), a csr_array of uint8, 1 where a topic is
        on; `feature_names`, numbers from 1 as in the files, and `label_names`, numbers from 0; the official
        split as indices of rows, `train` and `test`; `DESCR`.

    Raises
    ------
    ValueError
        A file is not what it must be.
    OSError
        No folder has the data, and they cannot be downloaded, or were changed.

    Examples
    --------
    >>> rcv1 = fetch_rcv1("train")                                    # doctest: +SKIP
    >>> rcv1.X.shape, rcv1.Y.shape                                    # doctest: +SKIP
    ((23149, 47236), (23149, 101))
    """
    if subset not in {"all", "train", "test"}:
        raise ValueError(f"subset must be 'all', 'train' or 'test'; got {subset!r}")
    utils = _check.extra("sklearn.utils", "datasets", "fetch_rcv1")
    parts = ["train", "test"] if subset == "all" else [subset]
    files = _parts(parts, data_home, download_if_missing)
    X, Y, sizes = _read([path for part in parts for path in files[part]])
    counts = iter(sizes)
    split = {part: sum(next(counts) for _ in files[part]) for part in parts}
    train = np.arange(split.get("train", 0))
    test = np.arange(len(train), len(train) + split.get("test", 0))
    read = "\n".join(f"  {path}" for part in parts for path in files[part])
    text = (
        "News stories of Reuters and their topics, tf-idf vectors (Lewis et al., 2004).\n\n"
        f"{X.shape[0]} examples ({len(train)} for training, {len(test)} for testing), {Y.shape[1]} labels, "
        f"{X.shape[1]} features, {int((Y.sum(axis=1) == 0).sum())} examples without labels.\n\n"
        f"Read from\n{read}\n"
        f"Original: {URL}\n"
    )
    return utils.Bunch(
        X=X,
        Y=Y,
        feature_names=[str(i + 1) for i in range(X.shape[1])],
        label_names=[str(k) for k in range(Y.shape[1])],
        train=train,
        test=test,
        DESCR=text,
    )


def _parts(
    parts: Sequence[str], data_home: _fetch.Folder, download_if_missing: bool
) -> dict[str, list[Path]]:
    for folder in _fetch.folders(data_home):
        found = {part: _in_folder(folder / "rcv1", part) for part in parts}
        if all(found.values()):
            for path in chain.from_iterable(found.values()):
                _fetch.verify(path)
            return found
    remotes = [_fetch.Remote(f"rcv1/{name}", URL + name) for part in parts for name in FILES[part]]
    paths = iter(_fetch.fetch(remotes, data_home=data_home, download_if_missing=download_if_missing))
    return {part: [next(paths) for _ in FILES[part]] for part in parts}


def _files(data_home: _fetch.Folder, download_if_missing: bool) -> list[Path]:
    return list(chain.from_iterable(_parts(("train", "test"), data_home, download_if_missing).values()))


def _in_folder(folder: Path, part: str) -> list[Path]:
    """The original's files if all are there, packed or not; else whatever else is there of this part."""
    originals = []
    for name in FILES[part]:
        names = [name, name.removesuffix(".bz2")]
        originals += [path for path in (folder / name for name in names) if path.is_file()][:1]
    if len(originals) == len(FILES[part]):
        return originals
    known = {name for names in FILES.values() for name in names}
    return [
        path
        for path in sorted(folder.glob("rcv1*"))
        if part in path.name and path.name.endswith(_ENDINGS) and path.name not in known
    ]


def _read(paths: list[Path]) -> tuple[Any, Any, list[int]]:
    from scipy import sparse
    from sklearn.datasets import load_svmlight_file

    blocks, labels = [], []
    for path in paths:
        with ExitStack() as stack:
            stack.enter_context(_fetch.whole(path))
            stream = stack.enter_context(_fetch.open_stream(path))
            try:
                X, sets = load_svmlight_file(stream, n_features=FEATURES, multilabel=True, zero_based=False)
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path} must hold lines of labels and index:value pairs; got {error}"
                ) from error
        for number, row in enumerate(sets):
            if not all(label == int(label) and label >= 0 for label in row):
                raise ValueError(f"{path}, example {number}, must have labels that count from 0; got {row}")
        blocks.append(X)
        labels.append(sets)
    rows = [row for sets in labels for row in sets]
    indices = np.array([label for row in rows for label in sorted(set(row))], np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(set(row)) for row in rows])])
    count = max([LABELS, *(indices.max(initial=0) + 1,)])
    Y = sparse.csr_array((np.ones(len(indices), np.uint8), indices, offsets), shape=(len(rows), int(count)))
    return sparse.csr_array(sparse.vstack(blocks, format="csr")), Y, [len(sets) for sets in labels]


ENTRIES = (
    Entry(
        "rcv1",
        "Topics of Reuters' news stories, RCV1-v2",
        "0.5 GB",
        _files,
        fetch_rcv1,
    ),
)
