"""GloVe: vectors of words, in the text format of the originals, one word a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from zerotail import _check
from zerotail.datasets import _fetch
from zerotail.datasets._registry import Entry

ARCHIVE = _fetch.Remote("glove.840B.300d.zip", "https://nlp.stanford.edu/data/glove.840B.300d.zip")
SOURCE = (
    "GloVe 840B (Pennington et al., 2014), PDDL 1.0: 2.2 million words, 300 dimensions,\n"
    "https://nlp.stanford.edu/projects/glove/"
)


def load_glove(
    path: _fetch.Folder,
    vocabulary: Iterable[str],
    *,
    data_home: _fetch.Folder = None,
    download_if_missing: bool = True,
) -> Any:
    """Load the GloVe vectors of the words of a vocabulary.

    The file is read as a stream: what is not asked for is never held. Needs scikit-learn, which
    `pip install "zerotail[datasets]"` brings.

    Parameters
    ----------
    path : path-like or None
        A text file of words and numbers, as it is, or compressed (.gz, .bz2, .xz); or NAME.zip, which holds
        NAME.txt. None: glove*.txt in the part glove of `data_home`, or the original, glove.840B.300d.zip.
    vocabulary : iterable of str
        The words to look for. The files are case-sensitive.
    data_home : path-like, optional
        Where to look, and to download to, when `path` is None. By default the environment's ZEROTAIL_DATA,
        which is never written to, then the cache.
    download_if_missing : bool, default True
        Whether to download what no folder has (2 GB), or to raise.

    Returns
    -------
    sklearn.utils.Bunch
        `words`, those of the vocabulary that have a vector, in its order; `vectors`, (words, dimensions),
        float32; `missing`, the words that have none; `DESCR`.

    Raises
    ------
    ValueError
        No word of the vocabulary has a vector, or a file is not what it must be.
    OSError
        No folder has the data, and they cannot be downloaded, or were changed.

    Examples
    --------
    >>> glove = load_glove(None, ["camel", "boy", "qwxz"])            # doctest: +SKIP
    >>> glove.words, glove.vectors.shape, glove.missing               # doctest: +SKIP
    (['camel', 'boy'], (2, 300), ['qwxz'])
    """
    utils = _check.extra("sklearn.utils", "datasets", "load_glove")
    if isinstance(vocabulary, str):
        raise TypeError(f"vocabulary must be words; got one text, {vocabulary[:40]!r}")
    wanted = list(dict.fromkeys(vocabulary))
    if not wanted:
        raise ValueError("vocabulary must have words; got none")
    if path is None:
        (path,) = _files(data_home, download_if_missing)
    path = Path(path).expanduser()
    with _fetch.open_data(path, f"{path.stem}.txt") as stream:
        found, lines, dim = _read(stream, path, {word.encode() for word in wanted})
    words = [word for word in wanted if word.encode() in found]
    if not words:
        raise ValueError(
            f"vocabulary must have words that {path} has; got {len(wanted)} words without a vector: "
            f"{', '.join(map(repr, wanted[:5]))}"
        )
    return utils.Bunch(
        words=words,
        vectors=np.stack([found[word.encode()] for word in words]),
        missing=[word for word in wanted if word.encode() not in found],
        DESCR=(
            f"Vectors of words.\n\n{len(words)} of {len(wanted)} words, {dim} dimensions, out of {lines}.\n\n"
            f"Read from\n  {path}\n{SOURCE}\n"
        ),
    )


def _read(stream: IO[bytes], path: Path, wanted: set[bytes]) -> tuple[dict[bytes, Any], int, int]:
    """The vectors that are wanted, the number of lines, and the dimensions, which the first line gives."""
    found: dict[bytes, Any] = {}
    number = dim = 0
    for number, line in enumerate(cast("Iterable[bytes]", stream), 1):
        if not dim:
            dim = line.count(b" ")
        # Some words of the originals have spaces in them.
        word, *fields = line.split(b" ", 1) if line.count(b" ") == dim else line.rsplit(b" ", dim)
        if word not in wanted or word in found:  # the first one counts
            continue
        try:
            vector = np.array(b" ".join(fields).split(), np.float32)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}, must be a word and {dim} numbers; got {error}"
            ) from error
        if dim < 1 or vector.shape != (dim,) or not np.isfinite(vector).all():
            raise ValueError(
                f"{path}, line {number}, must be a word and {max(dim, 1)} finite numbers; got {line[:60]!r}"
            )
        found[word] = vector
    return found, number, dim


def _files(data_home: _fetch.Folder, download_if_missing: bool) -> list[Path]:
    for folder in _fetch.folders(data_home):
        texts = sorted((folder / "glove").glob("glove*.txt"))
        if texts:
            _fetch.verify(texts[0])
            return texts[:1]
    return _fetch.fetch([ARCHIVE], data_home=data_home, download_if_missing=download_if_missing)


def _load(data_home: _fetch.Folder, download_if_missing: bool = True) -> Any:
    return load_glove(None, ["the"], data_home=data_home, download_if_missing=download_if_missing)


ENTRIES = (Entry("glove", "Vectors of 2.2 million words, GloVe 840B", "2 GB", _files, _load),)
