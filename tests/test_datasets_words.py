"""SNLI and GloVe: what the loaders return, and what they say of files that are not right."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from tests import small_snli
from tests.server import serve
from zerotail.datasets import __main__ as command
from zerotail.datasets import _fetch, fetch_snli, glove, load_glove, snli

RECORD = {"gold_label": "neutral", "sentence1": "A dog.", "sentence2": "A cat.", "pairID": "7"}


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def dev_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "snli_1.0" / "snli_1.0_dev.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def glove_file(folder: Path, text: str, name: str = "glove.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def zipped(name: str, text: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, text)
    return content.getvalue()


def test_the_originals_are_downloaded_once_and_read(tmp_path, monkeypatch):
    """A connection that breaks is opened again; of another checksum nothing is kept."""
    monkeypatch.setattr(_fetch, "DELAY", 0)
    pairs = zipped("snli_1.0/snli_1.0_dev.jsonl", lines(*[RECORD] * 50))
    with serve() as server:
        server.files = {"snli.zip": pairs, "words.zip": zipped("glove.840B.300d.txt", "the 1 2\na 3 4\n")}
        sha256 = hashlib.sha256(pairs).hexdigest()
        for wanted in ("0" * 64, sha256):
            remote = _fetch.Remote("snli_1.0.zip", f"{server.url}snli.zip", wanted)
            monkeypatch.setattr(snli, "ARCHIVE", remote)
            if wanted != sha256:
                with pytest.raises(OSError, match="must have the SHA-256 0000"):
                    fetch_snli("dev", data_home=tmp_path)
                assert list(tmp_path.iterdir()) == []
        server.drops = [100]
        monkeypatch.setattr(glove, "ARCHIVE", _fetch.Remote("glove.840B.300d.zip", f"{server.url}words.zip"))
        for _ in range(2):
            assert len(fetch_snli("dev", data_home=tmp_path).X) == 50
            assert load_glove(None, ["a"], data_home=tmp_path).vectors.tolist() == [[3, 4]]
        assert len(server.requests) == 4
    assert {path.suffix for path in tmp_path.iterdir()} == {".zip", ".sha256"}


def test_the_command_knows_both(tmp_path, capsys):
    small_snli.write(tmp_path / "data", train=5, dev=4, test=3)
    assert command.main(["--data-home", str(tmp_path / "data"), "describe", "snli", "glove"]) == 0
    said = capsys.readouterr().out
    assert "snli: Natural language inference" in said
    assert "4 pairs" in said
    assert f"1 of 1 words, {small_snli.DIM} dimensions, out of 32" in said
    assert command.main(["--data-home", str(tmp_path / "data"), "fetch", "snli"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


# ---- SNLI ------------------------------------------------------------------------------------------------


def test_pairs_without_a_gold_label_are_left_out(tmp_path):
    """What has one comes back in order, with labels numbered as named."""
    records = [
        RECORD,
        RECORD | {"gold_label": "-"},
        RECORD | {"gold_label": "contradiction", "sentence1": "É"},
    ]
    dev_file(tmp_path, lines(*records) + "\n")
    dev = fetch_snli("dev", data_home=tmp_path)
    assert dev.X == [("A dog.", "A cat."), ("É", "A cat.")]
    assert [dev.label_names[label] for label in dev.Y] == ["neutral", "contradiction"]
    assert dev.Y.dtype == np.int64
    assert dev.ids == ["7", "7"]
    assert "2 pairs" in dev.DESCR
    assert "1 without a gold label" in dev.DESCR


def test_a_train_part_may_be_a_subset(tmp_path):
    """The whole one wins."""
    folder = small_snli.write(tmp_path / "data", train=5)
    whole = folder / "snli_1.0" / "snli_1.0_train.jsonl"
    part = whole.with_name("snli_1.0_train_subset.jsonl")
    part.write_text(lines(RECORD), encoding="utf-8")
    assert len(fetch_snli("train", data_home=folder).X) == 5
    whole.unlink()
    assert len(fetch_snli("train", data_home=folder).X) == 1


def test_the_original_archive_is_read_where_it_lies(tmp_path):
    """Nothing is unpacked, whatever else is in it."""
    with zipfile.ZipFile(tmp_path / "snli_1.0.zip", "w") as archive:
        archive.writestr("snli_1.0/snli_1.0_test.jsonl", lines(RECORD))
        archive.writestr("__MACOSX/snli_1.0/._snli_1.0_test.jsonl", "junk")
    assert fetch_snli("test", data_home=tmp_path).X == [("A dog.", "A cat.")]
    assert [path.name for path in tmp_path.iterdir()] == ["snli_1.0.zip"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{not json}\n", "must be JSON; got Expecting"),
        (b"\xff\xfe\n", "must be JSON; got"),
        ("[1, 2]\n", "must be a JSON object; got"),
        (lines({"gold_label": "neutral", "sentence1": "A"}), "must have a text sentence2; got None"),
        (lines(RECORD | {"sentence1": 3}), "must have a text sentence1; got 3"),
        (lines(RECORD | {"gold_label": "maybe"}), "must have a gold_label of .*; got 'maybe'"),
    ],
)
def test_a_line_that_is_not_a_pair_is_named(tmp_path, bad, message):
    """File and line."""
    bad = bad if isinstance(bad, bytes) else bad.encode()
    dev_file(tmp_path, lines(RECORD, RECORD).encode() + bad)
    with pytest.raises(ValueError, match=f"snli_1.0_dev.jsonl, line 3, {message}"):
        fetch_snli("dev", data_home=tmp_path)


def test_a_part_without_pairs_is_refused(tmp_path):
    path = dev_file(tmp_path, lines(RECORD | {"gold_label": "-"}))
    with pytest.raises(ValueError, match=f"{path.name} must hold pairs with gold labels; got none"):
        fetch_snli("dev", data_home=tmp_path)


def test_a_part_must_be_one_of_the_official_split():
    with pytest.raises(ValueError, match="part must be 'train', 'dev' or 'test'; got 'valid'"):
        fetch_snli("valid")


def test_what_is_not_there_is_named_where_nothing_may_be_downloaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"snli_1\.0\.zip must be in "):
        fetch_snli("dev", data_home=tmp_path, download_if_missing=False)
    with pytest.raises(FileNotFoundError, match=r"glove\.840B\.300d\.zip must be in "):
        load_glove(None, ["a"], data_home=tmp_path, download_if_missing=False)


# ---- GloVe -----------------------------------------------------------------------------------------------

VECTORS = "the 1 2 3\ncat 0.5 -1e-3 2\n. . 4 5 6\nat name 7 8 9\nthe 0 0 0\né -1 -2 -3\n"


def test_vectors_come_in_the_order_of_the_vocabulary(tmp_path):
    """Words with spaces are words; of two lines for a word the first counts; case matters."""
    glove = load_glove(
        glove_file(tmp_path, VECTORS), ["é", "dog", "at name", "the", "The", "the", "at", ". ."]
    )
    assert glove.words == ["é", "at name", "the", ". ."]
    assert glove.missing == ["dog", "The", "at"]
    assert glove.vectors.dtype == np.float32
    assert glove.vectors.tolist() == [[-1, -2, -3], [7, 8, 9], [1, 2, 3], [4, 5, 6]]
    assert "4 of 7 words, 3 dimensions, out of 6" in glove.DESCR


def test_compressed_files_are_read_as_streams(tmp_path):
    """.gz, and a .zip that holds its namesake."""
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write(VECTORS)
    with zipfile.ZipFile(tmp_path / "glove.3d.zip", "w") as archive:
        archive.writestr("glove.3d.txt", VECTORS)
    for name in ("a.txt.gz", "glove.3d.zip"):
        assert load_glove(tmp_path / name, ["cat"]).vectors == pytest.approx(np.array([[0.5, -1e-3, 2]]))


def test_a_folder_is_searched_where_no_path_is_given(tmp_path, monkeypatch):
    """data_home, then ZEROTAIL_DATA."""
    small_snli.write(tmp_path / "data")
    assert load_glove(None, ["camel"], data_home=tmp_path / "data").vectors.shape == (1, small_snli.DIM)
    monkeypatch.setenv("ZEROTAIL_DATA", str(tmp_path / "data"))
    assert load_glove(None, iter(["camel"])).words == ["camel"]


def test_words_that_are_not_asked_for_are_not_held(tmp_path):
    """A file of 6 MB, of which 3 words are wanted, takes less than half a megabyte."""
    numbers = " ".join(["0.12345"] * 100)
    path = glove_file(tmp_path, "".join(f"word{i} {numbers}\n" for i in range(8000)))
    wanted = ["word5", "word4000", "word7999"]
    load_glove(path, wanted)
    tracemalloc.start()
    try:
        glove = load_glove(path, wanted)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert glove.words == wanted
    assert path.stat().st_size > 6_000_000
    assert peak < 500_000


def test_a_vocabulary_without_vectors_is_refused(tmp_path):
    path = glove_file(tmp_path, VECTORS)
    message = r"vocabulary must have words that .*; got 2 words without a vector: 'x', 'y'"
    with pytest.raises(ValueError, match=message):
        load_glove(path, ["x", "y"])
    with pytest.raises(ValueError, match="vocabulary must have words; got none"):
        load_glove(path, [])
    with pytest.raises(TypeError, match="vocabulary must be words; got one text, 'the'"):
        load_glove(path, "the")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat 1 2\n", "must be a word and 3 finite numbers; got b'cat 1 2"),
        ("cat 1 x 3\n", "must be a word and 3 numbers; got could not convert"),
        ("cat 1 nan 3\n", "must be a word and 3 finite numbers"),
    ],
)
def test_a_line_that_is_not_a_vector_is_named(tmp_path, line, message):
    """File and line, whether a number is missing, or none."""
    path = glove_file(tmp_path, "the 1 2 3\n" + line)
    with pytest.raises(ValueError, match=rf"glove\.txt, line 2, {message}"):
        load_glove(path, ["the", "cat"])


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    whole = gzip.compress(VECTORS.encode() * 100)
    (tmp_path / "a.gz").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match="must be a whole file; got one that is cut off"):
        load_glove(tmp_path / "a.gz", ["é"])
