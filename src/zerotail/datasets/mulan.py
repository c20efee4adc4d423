"""Multi-label data in Mulan's format: ARFF, dense or sparse, beside an XML file that names the labels."""

from __future__ import annotations

import codecs
import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerotail import _check
from zerotail.datasets import _fetch
from zerotail.datasets._registry import Entry

URL = "https://raw.githubusercontent.com/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label/"

# The originals, and their checksums.
KNOWN: dict[str, dict[str, str]] = {
    "scene": {
        "scene.xml": "55d8b247b949ad5c52e5a73d8c6775ec6e5469ce9682465b45b333b68ee4bcc5",
        "scene-train.arff": "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
        "scene-test.arff": "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
    },
    "emotions": {
        "emotions.xml": "dbce8e6ccbbb2fcbfd9e9edbb230d7ed12692c6e13f59fdbc0161fa9b6cf2dc0",
        "emotions-train.arff": "bbe704106c79bb8fb99c1d1d2e9bde081d6a2daeb01f100862f11fd91a3c1f98",
        "emotions-test.arff": "f13d4b746b7b5c8eb484bd751d6ac463d4560dff998a93516a5c1fe35daf6c8f",
    },
    "birds": {
        "birds.xml": "0f4ea547b2b3d538c8402662daf689e0d4520cc8b4f5ba113c2e7c01700f010f",
        "birds-train.arff": "8f215db6ee163149901e753977f631ba8bea0e0e8e1abc42b234414822f8ae36",
        "birds-test.arff": "51ba6326d65ccdd7c755b6461280eb6d2769c7f59d8e12fd4250f91e6ca28326",
    },
    "cal500": {
        "cal500.xml": "877e128531268d7661faa3e44f7bb43cbcda829c0895e49879168775b192728c",
        "cal500.arff": "cfe6097ba5fd6e8584e54911ab9783dcab34e898446b7c9370c71d477eae56d3",
    },
}
ABOUT = {
    "scene": "Images of scenes: 6 labels, 294 numbers a picture (Boutell et al., 2004).",
    "emotions": "Music and the emotions it evokes: 6 labels, 72 numbers a song (Trohidis et al., 2008).",
    "birds": "Species in recordings of birds: 19 labels, 258 numbers and 2 nominal features. Almost half of "
    "the recordings have no label (Briggs et al., 2013).",
    "cal500": "Words for songs: 174 labels, 68 numbers a song, no official split (Turnbull et al., 2008).",
}

# An attribute of an ARFF file: its name, and the values of a nominal one or the name of another type.
Attribute = tuple[str, list[str] | str]


def fetch_mulan(
    name: str, *, nominal: str = "number", data_home: _fetch.Folder = None, download_if_missing: bool = True
) -> Any:
    """Load a multi-label data set in Mulan's format.

    Needs SciPy, scikit-learn and liac-arff, which `pip install "zerotail[datasets]"` brings.

    Parameters
    ----------
    name : str
        "scene", "emotions", "birds" or "cal500", which are downloaded where no folder has them. Or any other
        name for which a folder has mulan/NAME/NAME.xml (or NAME/NAME.xml) and beside it NAME.arff, or
        NAME-train.arff and NAME-test.arff.
    nominal : {"number", "onehot"}, default "number"
        A nominal feature as the number that its value is, or where the values are no numbers, that counts
        them as declared; or as one feature a value.
    data_home : path-like, optional
        The folder to read, and to download into. By default the environment's ZEROTAIL_DATA, which is never
        written to, then the cache.
    download_if_missing : bool, default True
        Whether to download what no folder has, or to raise.

    Returns
    -------
    sklearn.utils.Bunch
        `X` (rows, features), float64, NaN where a value is missing, a csr_array if the file is sparse; `Y`
        (rows, labels), uint8, 1 where a label is on; `feature_names` and `label_names`; the official split
        as indices of rows, `train` and `test` (empty where there is none); `DESCR`.

    Raises
    ------
    ValueError
        A file is not what it must be; the message names the file and the line.
    OSError
        No folder has the data, and they cannot be downloaded, or were changed.

    Examples
    --------
    >>> emotions = fetch_mulan("emotions")                            # doctest: +SKIP
    >>> emotions.X.shape, emotions.Y.shape, len(emotions.train)       # doctest: +SKIP
    ((593, 72), (593, 6), 391)
    """
    if (
        not isinstance(name, str)
        or not name
        or Path(name).name != name
        or name in {".", ".."}
        or "\\" in name
    ):
        raise ValueError(f"name must be the name of a data set; got {name!r}")
    if nominal not in {"number", "onehot"}:
        raise ValueError(f"nominal must be 'number' or 'onehot'; got {nominal!r}")
    _check.extra("arff", "datasets", "fetch_mulan")
    utils = _check.extra("sklearn.utils", "datasets", "fetch_mulan")

    labels_path, *parts = _files(name, data_home, download_if_missing)
    label_names = _label_names(labels_path)
    tables = [_read_arff(path) for path in parts]
    attributes = tables[0][0]
    for path, (others, _) in zip(parts, tables, strict=True):
        if others != attributes:
            differing = next(
                (pair for pair in zip(attributes, others, strict=False) if pair[0] != pair[1]), None
            )
            got = (
                f"{differing[1]} for {differing[0]}" if differing else f"{len(others)} for {len(attributes)}"
            )
            raise ValueError(f"{path} must have the attributes of {parts[0]}; got {got}")
    columns = {attribute: i for i, (attribute, _) in enumerate(attributes)}
    for label in label_names:
        if label not in columns:
            raise ValueError(f"{labels_path} must name attributes of {parts[0]}; got {label!r}")
    labels = [columns[label] for label in label_names]
    is_label = set(labels)
    features = [i for i in range(len(attributes)) if i not in is_label]
    encoders = {i: _encoder(attributes[i], parts[0]) for i in features}

    rows = [row for _, table in tables for row in table]
    Y = np.vstack(
        [
            _indicators(table, labels, label_names, path)
            for path, (_, table) in zip(parts, tables, strict=True)
        ]
    )
    sparse = any(isinstance(row, dict) for row in rows)
    X, feature_names = (_sparse if sparse else _dense)(rows, features, attributes, encoders, nominal)
    sizes = [len(table) for _, table in tables]
    train = np.arange(sizes[0])
    test = np.arange(sizes[0], sum(sizes))
    read = "\n".join(f"  {path}" for path in [labels_path, *parts])
    split = f"{len(train)} for training, {len(test)} for testing" if len(parts) == 2 else "no official split"
    nominals = sum(encoder is not None for encoder in encoders.values())
    text = (
        f"{ABOUT.get(name, name)}\n\n{len(rows)} examples ({split}), {len(label_names)} labels, "
        + f"{X.shape[1]} features"
        + (f", of which {nominals} nominal as {nominal}" if nominals else "")
        + f", {int((np.asarray(Y).sum(axis=1) == 0).sum())} examples without labels.\n\nRead from\n{read}\n"
        + (f"Original: {URL}{name}/\n" if name in KNOWN else "")
    )
    return utils.Bunch(
        X=X, Y=Y, feature_names=feature_names, label_names=label_names, train=train, test=test, DESCR=text
    )


def _files(name: str, data_home: _fetch.Folder, download_if_missing: bool) -> list[Path]:
    """The XML file, and one ARFF file or two."""
    there = _fetch.find([f"mulan/{name}/{name}.xml", f"{name}/{name}.xml"], data_home)
    if there is not None:
        for names in ([f"{name}-train.arff", f"{name}-test.arff"], [f"{name}.arff"]):
            parts = [there.with_name(part) for part in names]
            if all(part.is_file() for part in parts):
                for path in [there, *parts]:
                    _fetch.verify(path)
                return [there, *parts]
    if name not in KNOWN:
        raise FileNotFoundError(
            f"name must be {', '.join(KNOWN)}, or a folder mulan/{name} with {name}.xml and {name}.arff, or "
            f"{name}-train.arff and {name}-test.arff, in {' or '.join(map(str, _fetch.folders(data_home)))}; "
            f"got {name!r}"
        )
    files = [
        _fetch.Remote(f"mulan/{name}/{file}", f"{URL}{name}/{file}", sha) for file, sha in KNOWN[name].items()
    ]
    return _fetch.fetch(files, data_home=data_home, download_if_missing=download_if_missing)


def _label_names(path: Path) -> list[str]:
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} must be XML; got {error}") from error
    names = [element.get("name", "") for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{path} must name labels, each one once; got {names[:9]}")
    return names


def _read_arff(path: Path) -> tuple[list[Attribute], list[Any]]:
    """The attributes, and the rows: lists, or for sparse rows dicts."""
    import arff

    with open(path, "rb") as file:
        text = file.read()
    try:
        lines = text.removeprefix(codecs.BOM_UTF8).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} must be UTF-8; got byte {text[error.start]:#x} in line {line}") from error
    start = next((i for i, line in enumerate(lines) if line.strip().lower() == "@data"), None)
    if start is None:
        raise ValueError(f"{path} must have a line @data; got {len(lines)} lines without one")
    first = next((line.strip() for line in lines[start + 1 :] if line.strip() and line.strip()[0] != "%"), "")
    kind = arff.LOD if first.startswith("{") else arff.DENSE
    try:
        data = arff.ArffDecoder().decode(lines, return_type=kind)
    except arff.ArffException as error:
        number = error.line
        row = lines[number - 1] if 0 < number <= len(lines) else ""
        wanted = sum(line.strip().lower().startswith("@attribute") for line in lines[:start])
        if isinstance(error, arff.BadDataFormat) and not row.strip().startswith("{"):
            found = len(next(csv.reader([row], quotechar="'", escapechar="\\", skipinitialspace=True)))
            said = f"{wanted} values; got {found}"
        else:
            said = f"what the attributes declare; got {row.strip()[:60]!r} ({type(error).__name__})"
        raise ValueError(f"{path}, line {number}, must hold {said}") from error
    attributes = [(_unescape(name), kind) for name, kind in data["attributes"]]
    return attributes, data["data"]


def _unescape(name: str) -> str:
    for quote in ("'", '"'):
        name = name.replace(f"\\{quote}", quote)
    return name


def _encoder(attribute: Attribute, path: Path) -> dict[str, float] | None:
    """Numbers for the values of a nominal attribute; None for a numeric one."""
    name, kind = attribute
    if isinstance(kind, str):
        if kind.upper() not in {"NUMERIC", "REAL", "INTEGER"}:
            raise ValueError(f"{path} must have numeric and nominal features; got {name!r} of type {kind}")
        return None
    try:
        return {value: float(value) for value in kind}
    except ValueError:
        return {value: float(i) for i, value in enumerate(kind)}


def _indicators(rows: list[Any], labels: list[int], names: list[str], path: Path) -> NDArray[np.uint8]:
    Y = np.zeros((len(rows), len(labels)), np.uint8)
    on = {"1": 1, "0": 0, 1.0: 1, 0.0: 0}
    for i, row in enumerate(rows):
        for k, column in enumerate(labels):
            value = row.get(column, 0) if isinstance(row, dict) else row[column]
            if value not in on:
                raise ValueError(f"{path}, example {i}, must have {names[k]!r} 0 or 1; got {value!r}")
            Y[i, k] = on[value]
    return Y


def _number(value: Any, encoder: dict[str, float] | None) -> float:
    if value is None:
        return np.nan
    return float(value) if encoder is None else encoder[value]


def _dense(
    rows: list[Any],
    features: list[int],
    attributes: list[Attribute],
    encoders: dict[int, dict[str, float] | None],
    nominal: str,
) -> tuple[Any, list[str]]:
    blocks, names = [], []
    for i in features:
        encoder = encoders[i]
        column = np.array([_number(row[i], encoder) for row in rows])
        if encoder is None or nominal == "number":
            blocks.append(column[:, None])
            names.append(attributes[i][0])
        else:
            codes = np.array(list(encoder.values()))
            hot = (column[:, None] == codes).astype(float)
            hot[np.isnan(column)] = np.nan
            blocks.append(hot)
            names += [f"{attributes[i][0]}={value}" for value in encoder]
    return np.hstack(blocks) if blocks else np.empty((len(rows), 0)), names


def _sparse(
    rows: list[Any],
    features: list[int],
    attributes: list[Attribute],
    encoders: dict[int, dict[str, float] | None],
    nominal: str,
) -> tuple[Any, list[str]]:
    """A row leaves out what is 0, and of a nominal attribute its first value."""
    from scipy import sparse

    names: list[str] = []
    # Where the features of an attribute begin; the value of one that is left out.
    start: dict[int, int] = {}
    implied: dict[int, Any] = {}
    for i in features:
        start[i] = len(names)
        encoder, (name, kind) = encoders[i], attributes[i]
        names += [f"{name}={value}" for value in kind] if encoder and nominal == "onehot" else [name]
        if encoder and (nominal == "onehot" or encoder[kind[0]] != 0):
            implied[i] = kind[0]
    values: list[float] = []
    indices: list[int] = []
    offsets = [0]
    for row in rows:
        held = {i: value for i, value in row.items() if i in start}
        for i, value in sorted({**implied, **held}.items()):
            encoder = encoders[i]
            if encoder and nominal == "onehot":
                if value is None:
                    span = range(start[i], start[i] + len(encoder))
                    indices += span
                    values += [np.nan] * len(span)
                else:
                    indices.append(start[i] + list(encoder).index(value))
                    values.append(1.0)
            elif (number := _number(value, encoder)) != 0:
                indices.append(start[i])
                values.append(number)
        offsets.append(len(values))
    shape = (len(rows), len(names))
    matrix = sparse.csr_array(
        (np.array(values, float), np.array(indices, np.intc), np.array(offsets)), shape=shape
    )
    return matrix, names


ENTRIES = tuple(
    Entry(
        name,
        ABOUT[name].partition(":")[0],
        size,
        lambda data_home, download_if_missing, name=name: _files(name, data_home, download_if_missing),
        lambda name=name, **options: fetch_mulan(name, **options),
    )
    for name, size in {"scene": "6 MB", "emotions": "0.4 MB", "birds": "1 MB", "cal500": "0.5 MB"}.items()
)
