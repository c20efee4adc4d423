"""The data sets: downloads that fail, archives and files that are not what they should be, what is loaded."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("arff")

from scipy.special import factorial

from tests import paper_data
from tests.server import Server, serve
from zerotail import datasets
from zerotail.datasets import __main__ as command
from zerotail.datasets import _fetch, mulan, rcv1

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(_fetch, "DELAY", 0)
    with serve() as running:
        running.files["file.bin"] = CONTENT
        yield running


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No folder of the machine is read; the cache is empty."""
    monkeypatch.delenv("ZEROTAIL_DATA", raising=False)
    monkeypatch.setattr(_fetch, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def remote(server: Server, sha256: str | None = SHA) -> _fetch.Remote:
    return _fetch.Remote("set/file.bin", f"{server.url}file.bin", sha256)


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ---- downloads

WHOLE = {"set/file.bin", "set/file.bin.sha256"}


def test_a_download_is_the_file_and_its_checksum_and_nothing_else(server, tmp_path):
    """Moved to its place when whole; a second call asks for nothing."""
    path = _fetch.download(remote(server), tmp_path)
    assert path.read_bytes() == CONTENT
    assert listing(tmp_path) == WHOLE
    assert (tmp_path / "set/file.bin.sha256").read_text().split()[0] == SHA
    _fetch.download(remote(server), tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize("sha256", [SHA, None], ids=["known", "unknown"])
def test_a_dropped_connection_is_resumed_where_it_broke(server, tmp_path, sha256):
    server.drops = [100_000, 50_000]
    assert _fetch.download(remote(server, sha256), tmp_path).read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert listing(tmp_path) == WHOLE


def test_after_a_download_that_was_given_up_the_next_call_goes_on(server, tmp_path):
    """What is there stays in .part, the error says so; no file has the final name."""
    server.drops = [70_000, *[0] * _fetch.RETRIES]
    with pytest.raises(OSError, match=r"file.bin must be reachable; got .*70000 bytes are kept"):
        _fetch.download(remote(server), tmp_path)
    assert listing(tmp_path) == {"set/file.bin.part", "set/file.bin.part.tag"}
    assert (tmp_path / "set/file.bin.part").read_bytes() == CONTENT[:70_000]
    server.requests.clear()
    assert _fetch.download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("file.bin", "bytes=70000-")]
    assert listing(tmp_path) == WHOLE


@pytest.mark.parametrize("tags", [True, False], ids=["tag", "no tag"])
def test_parts_of_two_versions_are_never_glued_together(server, tmp_path, tags):
    """Without a checksum the server's tag decides; where it gives none, the download begins again."""
    server.tags, server.drops = tags, [70_000, *[0] * _fetch.RETRIES]
    with pytest.raises(OSError, match="must be reachable"):
        _fetch.download(remote(server, None), tmp_path)
    server.files["file.bin"] = CONTENT[::-1]
    assert _fetch.download(remote(server, None), tmp_path).read_bytes() == CONTENT[::-1]


def test_a_break_at_the_same_place_each_time_has_an_end(server, tmp_path):
    """Where nothing can be continued; the error does not say that anything is kept."""
    server.tags, server.drops = False, [70_000, 50_000] * 10
    with pytest.raises(OSError, match=r"file.bin must be reachable; got .*closed after \d+") as told:
        _fetch.download(remote(server, None), tmp_path)
    assert "kept" not in str(told.value)
    assert len(server.requests) == 1 + _fetch.RETRIES


def test_a_server_that_knows_no_ranges_is_asked_from_the_start(server, tmp_path):
    server.ranges, server.drops = False, [100_000]
    assert _fetch.download(remote(server), tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(CONTENT + b"more")
    assert _fetch.download(remote(server), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(OSError, match=rf"must have the SHA-256 {'0' * 64}; got {SHA}"):
        _fetch.download(remote(server, "0" * 64), tmp_path)
    assert listing(tmp_path) == set()


def test_what_is_not_there_is_not_asked_for_again(server, tmp_path):
    with pytest.raises(
        OSError, match=r"nothing.bin must be reachable; got HTTP Error 404.*data_home= or ZEROTAIL_DATA"
    ):
        _fetch.download(_fetch.Remote("nothing.bin", f"{server.url}nothing.bin"), tmp_path)
    assert len(server.requests) == 1
    assert listing(tmp_path) == set()


def test_a_checksum_that_is_not_known_is_kept_and_compared_later(server, tmp_path):
    """With the file, whenever it is used; and with another download."""
    wanted = remote(server, None)
    path = _fetch.download(wanted, tmp_path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(OSError, match=r"must have the SHA-256 of its download.*delete it"):
        _fetch.fetch([wanted], data_home=tmp_path)
    path.unlink()
    server.files["file.bin"] = CONTENT + b"!"
    with pytest.raises(OSError, match=f"must have the SHA-256 {SHA}"):
        _fetch.fetch([wanted], data_home=tmp_path)
    assert listing(tmp_path) == {"set/file.bin.sha256"}


def test_two_that_download_at_once_download_once(server, tmp_path):
    found: list[bytes] = []
    work = [
        threading.Thread(target=lambda: found.append(_fetch.download(remote(server), tmp_path).read_bytes()))
        for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [CONTENT] * 4
    if os.name != "nt":  # downloads take no lock there
        assert len(server.requests) == 1
    assert listing(tmp_path) == WHOLE


@pytest.mark.skipif(os.name == "nt", reason="downloads take no lock of a file on Windows")
@pytest.mark.parametrize("sha256", [SHA, "0" * 64], ids=["whole", "refused"])
def test_the_part_of_one_that_comes_later_is_left_alone(server, tmp_path, monkeypatch, sha256):
    """Another process opens its part as soon as ours has its final name, or is thrown away."""
    part = tmp_path / "set/file.bin.part"
    leave = _fetch._leave

    def other(*arguments):
        assert not part.exists()
        part.touch()
        leave(*arguments)

    monkeypatch.setattr(_fetch, "_leave", other)
    if sha256 == SHA:
        assert _fetch.download(remote(server), tmp_path).read_bytes() == CONTENT
    else:
        with pytest.raises(OSError, match="must have the SHA-256"):
            _fetch.download(remote(server, sha256), tmp_path)
    assert part.exists()


def test_the_bar_counts_every_byte_once(server, tmp_path, monkeypatch):
    """From where a download goes on, to the size of the file."""

    class Bar:
        n = 0

        def update(self, n):
            self.n += n

        def close(self):
            totals.append((self.total, self.n))

    def bar(name, total):
        made = Bar()
        made.total = total
        return made

    totals: list[tuple[int, int]] = []
    monkeypatch.setattr(_fetch, "_bar", bar)
    server.drops = [100_000]
    _fetch.download(remote(server), tmp_path)
    assert totals == [(len(CONTENT), len(CONTENT))]


# ---- folders


def test_a_folder_that_is_named_wins(tmp_path, nowhere, monkeypatch):
    """data_home= before ZEROTAIL_DATA before the cache; they differ in their seeds."""
    homes = [
        paper_data.make(path, seed) for seed, path in enumerate([tmp_path / "a", tmp_path / "b", nowhere])
    ]
    found = [datasets.fetch_mulan("scene").X]
    monkeypatch.setenv("ZEROTAIL_DATA", str(homes[1]))
    found.append(datasets.fetch_mulan("scene").X)
    found.append(datasets.fetch_mulan("scene", data_home=homes[0]).X)
    expected = [datasets.fetch_mulan("scene", data_home=home).X for home in reversed(homes)]
    assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))
    assert not np.array_equal(found[0], found[1])


def test_the_folder_of_the_environment_is_never_written_to(server, tmp_path, nowhere, monkeypatch):
    """What it lacks goes to the cache; even where data_home names the same folder."""
    home = tmp_path / "data"
    home.mkdir()
    monkeypatch.setenv("ZEROTAIL_DATA", str(home))
    (path,) = _fetch.fetch([remote(server)])
    assert path.is_relative_to(nowhere)
    with pytest.raises(FileNotFoundError, match="never written to"):
        _fetch.fetch([remote(server)], data_home=home)
    assert listing(home) == set()


def test_without_leave_to_download_missing_data_are_an_error(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"mulan/scene/scene.xml must be in .* when download_if_missing is False"
    ):
        datasets.fetch_mulan("scene", data_home=tmp_path, download_if_missing=False)
    with pytest.raises(FileNotFoundError, match=r"rcv1_topics_train.svm.bz2 must be in"):
        datasets.fetch_rcv1(data_home=tmp_path, download_if_missing=False)
    assert listing(tmp_path) == set()


def test_a_data_folder_that_is_none_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROTAIL_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="ZEROTAIL_DATA must be a folder; got"):
        datasets.fetch_mulan("scene")


def test_the_originals_are_downloaded_and_read(server, tmp_path, monkeypatch):
    """From the addresses that the modules name, with their checksums, through the public functions."""
    made = paper_data.make(tmp_path / "made")
    for path in filter(Path.is_file, made.rglob("*")):
        server.files[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    names = ("birds.xml", "birds-train.arff", "birds-test.arff")
    files = {name: hashlib.sha256((made / "mulan/birds" / name).read_bytes()).hexdigest() for name in names}
    monkeypatch.setattr(mulan, "URL", server.url)
    monkeypatch.setitem(mulan.KNOWN, "birds", files)
    birds = datasets.fetch_mulan("birds", data_home=tmp_path / "home")
    assert np.array_equal(birds.X, datasets.fetch_mulan("birds", data_home=made).X)

    monkeypatch.setattr(rcv1, "URL", f"{server.url}rcv1/")
    monkeypatch.setattr(
        rcv1, "FILES", {part: (f"rcv1_topics_made_{part}.svm.bz2",) for part in ("train", "test")}
    )
    news = datasets.fetch_rcv1(data_home=tmp_path / "home")
    assert (news.X != datasets.fetch_rcv1(data_home=made).X).nnz == 0

    monkeypatch.setitem(mulan.KNOWN, "scene", {"scene.xml": "0" * 64, "scene.arff": "0" * 64})
    with pytest.raises(OSError, match="must have the SHA-256"):
        datasets.fetch_mulan("scene", data_home=tmp_path / "home")
    assert not any("scene" in name for name in listing(tmp_path / "home"))


# ---- archives


@pytest.mark.parametrize(
    "name", ["../evil.txt", "a/../../evil.txt", "/evil.txt", "C:/evil.txt", "..\\evil.txt", "link"]
)
def test_an_archive_that_reaches_out_of_its_folder_is_refused_as_a_whole(tmp_path, name):
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("good.txt", "good")
        info = zipfile.ZipInfo(name)
        info.filename = name
        if name == "link":
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "/etc/passwd")
    with (
        pytest.raises(ValueError, match="must hold files below its own folder; got"),
        _fetch.open_member(archive, "good.txt"),
    ):
        pass
    assert listing(tmp_path) == {"data.zip"}


def test_members_of_an_archive_are_read_without_being_extracted(tmp_path):
    """A damaged one and one that is cut off are named; so is a member that is missing."""
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("set/a.txt", "a" * 100_000)
        file.writestr("set/b.txt", np.random.default_rng(0).bytes(100_000))

    def read(name: str) -> bytes:
        with _fetch.open_member(archive, name) as stream:
            return stream.read()

    assert read("set/a.txt") == b"a" * 100_000
    with pytest.raises(ValueError, match=r"must hold set/c.txt; got set/a.txt"):
        read("set/c.txt")
    damaged = bytearray(archive.read_bytes())
    damaged[50_000] ^= 255
    archive.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"data.zip must be a whole file; got a damaged one"):
        read("set/b.txt")
    archive.write_bytes(damaged[:60_000])
    with pytest.raises(ValueError, match=r"data.zip must be a whole file"):
        read("set/a.txt")
    assert listing(tmp_path) == {"data.zip"}


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_a_truncated_file_is_named(tmp_path, compress):
    """As a stream, and under the loader of RCV1."""
    suffix = {"gzip": ".gz", "bz2": ".bz2"}[compress.__module__]
    whole = compress(b"1,3 1:0.5 7:0.25\n" * 1000)
    home = tmp_path / "rcv1"
    home.mkdir()
    paths = [home / f"rcv1_{part}.svm{suffix}" for part in ("train", "test")]
    for path in paths:
        path.write_bytes(whole)
    assert datasets.fetch_rcv1(data_home=tmp_path).X.shape == (2000, 47236)
    paths[1].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{paths[1].name} must be a whole file; got one that is cut off"):
        datasets.fetch_rcv1(data_home=tmp_path)
    with (
        pytest.raises(ValueError, match="cut off"),
        _fetch.whole(paths[1]),
        _fetch.open_stream(paths[1]) as stream,
    ):
        stream.read()


# ---- Mulan's format


def write(folder: Path, arff: str, names: str = "on,off") -> Path:
    """A data set "mine" with these labels."""
    home = folder / "mine"
    home.mkdir(parents=True, exist_ok=True)
    labels = "".join(f'<label name="{name}"/>' for name in names.split(","))
    (home / "mine.xml").write_text(f'<labels xmlns="http://mulan.sourceforge.net/labels">{labels}</labels>')
    (home / "mine.arff").write_bytes(arff.encode() if isinstance(arff, str) else arff)
    return folder


HEAD = """% a comment
@relation mine
@attribute a numeric
@attribute 'Stellar\\'s {Jay}, b' REAL
@attribute place {7,2,5}
@attribute word {x,'a b'}
@attribute on {0,1}
@attribute off {0,1}
@data
"""


def test_an_arff_file_is_read_as_it_is_meant(tmp_path):
    """Quoted apostrophes, blanks and commas; nominal values as numbers or counted; missing values as NaN."""
    write(tmp_path, HEAD + "1,-2.5,2,'a b',1,0\n\n% again\n?,3e1,7,x,0,1\n0,0,?,x,1,1\n")
    mine = datasets.fetch_mulan("mine", data_home=tmp_path)
    assert np.array_equal(mine.X, [[1, -2.5, 2, 1], [np.nan, 30, 7, 0], [0, 0, np.nan, 0]], equal_nan=True)
    assert mine.Y.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert mine.Y.dtype == np.uint8
    assert mine.feature_names == ["a", "Stellar's {Jay}, b", "place", "word"]
    assert mine.label_names == ["on", "off"]
    assert (mine.train.tolist(), mine.test.tolist()) == ([0, 1, 2], [])

    hot = datasets.fetch_mulan("mine", nominal="onehot", data_home=tmp_path)
    assert hot.feature_names[2:] == ["place=7", "place=2", "place=5", "word=x", "word=a b"]
    assert np.array_equal(
        hot.X[:, 2:], [[0, 1, 0, 0, 1], [1, 0, 0, 1, 0], [np.nan] * 3 + [1, 0]], equal_nan=True
    )


@pytest.mark.parametrize("nominal", ["number", "onehot"])
def test_sparse_arff_says_the_same_in_fewer_words(tmp_path, nominal):
    """What a row leaves out is 0, and of a nominal attribute its first value."""
    dense = "1,0,2,'a b',1,0\n0,30,7,x,0,1\n0,?,5,x,1,1\n"
    sparse = "{0 1,2 2,3 'a b',4 1}\n{1 30,5 1}\n{1 ?, 2 5, 4 1, 5 1}\n"
    read = [
        datasets.fetch_mulan("mine", nominal=nominal, data_home=write(tmp_path / name, HEAD + text))
        for name, text in (("dense", dense), ("sparse", sparse))
    ]
    assert type(read[1].X).__name__ == "csr_array"
    assert np.array_equal(read[0].X, read[1].X.toarray(), equal_nan=True)
    assert read[0].Y.tolist() == read[1].Y.tolist()
    assert read[0].feature_names == read[1].feature_names


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (HEAD + "1,2,7,x,0,1\n1,2,7,x,0\n", "on,off", r"mine.arff, line 11, must hold 6 values; got 5"),
        (HEAD + "1,2,7,'a b',0,1,1\n", "on,off", r"line 10, must hold 6 values; got 7"),
        (HEAD + "1,2,9,x,0,1\n", "on,off", r"line 10, must hold what the attributes declare; got '1,2,9"),
        (HEAD + "one,2,7,x,0,1\n", "on,off", r"line 10, must hold what the attributes declare; got 'one,2"),
        (HEAD + "{9 1}\n", "on,off", r"line 10, must hold what the attributes declare; got '{9 1}'"),
        (
            HEAD + "1,2,7,x,?,1\n",
            "on,off",
            r"mine.arff, example 0, must have 'on' 0 or 1; got None",
        ),
        (
            HEAD + "1,2,7,x,0,1\n",
            "on,nowhere",
            r"mine.xml must name attributes of .*mine.arff; got 'nowhere'",
        ),
        (HEAD + "1,2,7,x,0,1\n", "on,on", r"mine.xml must name labels, each one once"),
        (
            HEAD.replace("REAL", "STRING") + "1,2,7,x,0,1\n",
            "on,off",
            r"got \"Stellar's {Jay}, b\" of type STRING",
        ),
        (HEAD.replace("@data\n", ""), "on,off", r"must have a line @data"),
        (HEAD.encode() + b"1,2,7,\xff,0,1\n", "on,off", r"must be UTF-8; got byte 0xff in line 10"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and "must" in value else "",
)
def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path, text, names, message):
    with pytest.raises(ValueError, match=message):
        datasets.fetch_mulan("mine", data_home=write(tmp_path, text, names))


def test_a_label_file_that_is_no_xml_is_named(tmp_path):
    write(tmp_path, HEAD)
    (tmp_path / "mine/mine.xml").write_text("<labels>")
    with pytest.raises(ValueError, match=r"mine.xml must be XML; got"):
        datasets.fetch_mulan("mine", data_home=tmp_path)


def test_training_and_test_part_have_the_same_attributes(tmp_path):
    home = write(tmp_path, HEAD) / "mine"
    (home / "mine.arff").rename(home / "mine-train.arff")
    (home / "mine-test.arff").write_text(HEAD.replace("{7,2,5}", "{7,2}"))
    with pytest.raises(ValueError, match=r"mine-test.arff must have the attributes of .*mine-train.arff"):
        datasets.fetch_mulan("mine", data_home=tmp_path)


@pytest.mark.parametrize("name", ["../scene", "a/b", "", "..", 3])
def test_a_name_is_a_name(name):
    with pytest.raises(ValueError, match="name must be the name of a data set; got"):
        datasets.fetch_mulan(name)


def test_bad_choices_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="name must be scene, emotions, birds, cal500, or a folder"):
        datasets.fetch_mulan("unknown", data_home=tmp_path)
    with pytest.raises(ValueError, match="nominal must be 'number' or 'onehot'; got 'hot'"):
        datasets.fetch_mulan("scene", nominal="hot")
    with pytest.raises(ValueError, match="subset must be 'all', 'train' or 'test'; got 'dev'"):
        datasets.fetch_rcv1("dev")


# ---- RCV1


def test_label_sets_in_libsvms_format_are_read(tmp_path):
    """Labels count from 0, features from 1; either part alone; a file may be plain or packed."""
    home = tmp_path / "rcv1"
    home.mkdir()
    (home / "rcv1_train.svm").write_text("0,100 1:0.5 47236:0.25\n3 2:1\n")
    (home / "rcv1_test.svm.bz2").write_bytes(bz2.compress(b"1,0 7:0.125\n"))
    news = datasets.fetch_rcv1(data_home=tmp_path)
    assert news.X.shape == (3, 47236)
    assert news.Y.shape == (3, 101)
    assert news.X.tocoo().row.tolist() == [0, 0, 1, 2]
    assert news.X.indices.tolist() == [0, 47235, 1, 6]
    assert [np.flatnonzero(row).tolist() for row in news.Y.toarray()] == [[0, 100], [3], [0, 1]]
    assert (news.train.tolist(), news.test.tolist()) == ([0, 1], [2])
    test = datasets.fetch_rcv1("test", data_home=tmp_path)
    assert (test.X.shape[0], test.train.tolist(), test.test.tolist()) == (1, [], [0])

    (home / "rcv1_train.svm").write_text("0,1 nonsense\n")
    with pytest.raises(ValueError, match=r"rcv1_train.svm must hold lines of labels and index:value pairs"):
        datasets.fetch_rcv1(data_home=tmp_path)
    (home / "rcv1_train.svm").write_text("0,1 47237:1\n")
    with pytest.raises(ValueError, match=r"rcv1_train.svm must hold"):
        datasets.fetch_rcv1(data_home=tmp_path)
    (home / "rcv1_train.svm").write_text("-1 1:1\n")
    with pytest.raises(ValueError, match=r"example 0, must have labels that count from 0"):
        datasets.fetch_rcv1(data_home=tmp_path)


# ---- documents


@pytest.mark.parametrize("variant", ["text", "code"])
@pytest.mark.parametrize("mixture", ["uniform", "random"])
def test_documents_are_drawn_from_their_proportions(mixture, variant):
    """The counts of words, standardised by what the proportions say, have mean 0 and variance 1."""
    made = datasets.make_documents(
        4000, 7, n_labels=11, n_words=13, length=300, mixture=mixture, variant=variant, random_state=1
    )
    assert made.X.shape == (4007, 13)
    assert made.Y.shape == (4007, 11)
    assert np.allclose(made.Y.sum(axis=1), 1)
    active = (made.Y > 0).sum(axis=1)
    # Poisson(1) without 0: 1 / (1 - 1/e).
    assert abs(active.mean() - 1.582) < 0.05
    equal = np.isclose(made.Y, (made.Y > 0) / active[:, None]).all(axis=1)
    assert equal.all() if mixture == "uniform" else not equal[active > 1].any()
    expected = 300 * made.Y @ made.words
    z = (made.X - expected) / np.sqrt(expected)
    assert abs(z.mean()) < 0.02
    assert abs(z.var() - 1) < 0.03


def test_the_variants_differ_in_the_shares_of_two_labels():
    """The larger share has mean 3/4 under a flat Dirichlet, log 2 if two uniform numbers are normalised."""
    mean = {}
    for variant in ("text", "code"):
        made = datasets.make_documents(
            20000, 0, n_labels=5, length=1, mixture="random", variant=variant, random_state=2
        )
        two = made.Y[(made.Y > 0).sum(axis=1) == 2]
        mean[variant] = two.max(axis=1).mean()
    assert abs(mean["text"] - 0.75) < 0.01
    assert abs(mean["code"] - np.log(2)) < 0.01


@pytest.mark.parametrize(("n_labels", "mean"), [(3, 6.0), (3, 20.0), (3, 1e12), (5, 0.009), (1, 1e-9)])
def test_numbers_of_labels_that_are_improbable_are_drawn_too(n_labels, mean):
    """Poisson, given that it is from 1 to `n_labels`; what would be redrawn nearly for ever, directly."""
    made = datasets.make_documents(20_000, 0, n_labels=n_labels, length=1, mean_labels=mean, random_state=3)
    shares = np.bincount((made.Y > 0).sum(axis=1), minlength=n_labels + 1)[1:] / 20_000
    sizes = np.arange(1, n_labels + 1)
    chances = mean**sizes / factorial(sizes)
    assert np.abs(shares - chances / chances.sum()).max() < 0.02


def test_equal_seeds_draw_equal_documents():
    first, again, other = (datasets.make_documents(20, 10, random_state=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)
    assert np.array_equal(first.X, datasets.make_documents(20, 10, random_state=np.random.default_rng(0)).X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_train": -1}, "n_train must be an integer of at least 0; got -1"),
        ({"n_labels": 0}, "n_labels must be an integer of at least 1; got 0"),
        ({"n_labels": 2.5}, "n_labels must be an integer of at least 1; got 2.5"),
        ({"n_words": 0}, "n_words must be an integer of at least 1; got 0"),
        ({"length": 0}, "length must be positive and finite; got 0"),
        ({"length": np.nan}, "length must be positive and finite; got nan"),
        ({"mixture": "flat"}, "mixture must be 'uniform' or 'random'; got 'flat'"),
        ({"variant": "book"}, "variant must be 'text' or 'code'; got 'book'"),
    ],
)
def test_a_bad_argument_is_named_with_what_it_was(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.make_documents(**arguments)


# ---- the command


def test_the_command_lists_fetches_and_describes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZEROTAIL_DATA", str(paper_data.make(tmp_path / "data")))
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert said.count("(here)") >= 5
    assert command.main(["describe", "birds", "rcv1"]) == 0
    said = capsys.readouterr().out
    assert "70 examples (40 for training, 30 for testing), 7 labels, 14 features, of which 1 nominal" in said
    assert "80 examples (50 for training, 30 for testing), 101 labels" in said
    assert command.main(["fetch", "cal500"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("cal500.arff")
    with pytest.raises(SystemExit):
        command.main(["fetch", "unknown"])
    assert "NAME must be scene, emotions" in capsys.readouterr().err
    (tmp_path / "data/mulan/birds/birds-test.arff").write_text("nothing")
    assert command.main(["describe", "birds"]) == 1
    assert "error: " in capsys.readouterr().err


def test_the_command_lists_what_is_not_here(capsys):
    assert command.main(["list"]) == 0
    assert capsys.readouterr().out.count("not here") >= 5
