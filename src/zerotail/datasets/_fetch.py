"""Where the files of a data set come from: the folder that wins, the download, the archive.

A folder that is named wins: `data_home=`, then the environment's ZEROTAIL_DATA, then the cache. Files found
there are read as they are. What is missing is downloaded into `data_home`, or into the cache; ZEROTAIL_DATA
is never written to.

A download goes to NAME.part, continues where it stopped, is compared with the checksum, and is then moved to
NAME at once; its checksum stays beside it in NAME.sha256, and is compared whenever the file is used or
downloaded again.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import http.client
import lzma
import os
import re
import stat
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, cast

Folder = str | os.PathLike[str] | None

RETRIES = 4  # attempts in a row that come no further
DELAY = 0.5  # seconds before the first of them; doubled each time
TIMEOUT = 30.0
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file in its place below a data folder, and where its original is."""

    path: str
    url: str
    sha256: str | None = None  # None: not known; that of the first download is kept and compared later


def cache() -> Path:
    """The folder that downloads go to where none is named."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "zerotail"


def folders(data_home: Folder) -> list[Path]:
    """The folders to look in, the winner first; the last one is where downloads go."""
    if data_home is not None:
        return [Path(data_home).expanduser()]
    named = os.environ.get("ZEROTAIL_DATA")
    if not named:
        return [cache()]
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"ZEROTAIL_DATA must be a folder; got {named}")
    return [folder, cache()]


def find(places: Sequence[str], data_home: Folder) -> Path | None:
    """The first of these paths that exists, relative to the first folder that has one."""
    for folder in folders(data_home):
        for place in places:
            if (folder / place).exists():
                return folder / place
    return None


def fetch(
    files: Sequence[Remote], *, data_home: Folder = None, download_if_missing: bool = True
) -> list[Path]:
    """The files, all from one folder: the first that has them all, else where they are downloaded to."""
    looked = folders(data_home)
    for folder in looked:
        paths = [folder / file.path for file in files]
        if all(path.is_file() for path in paths):
            for path in paths:
                verify(path)
            return paths
    home = looked[-1]
    missing = [file for file in files if not (home / file.path).is_file()]
    if not download_if_missing:
        raise FileNotFoundError(
            f"{missing[0].path} must be in {' or '.join(map(str, looked))} when download_if_missing is "
            "False; got no such file"
        )
    named = os.environ.get("ZEROTAIL_DATA")
    if named and home.resolve() == Path(named).expanduser().resolve():
        raise FileNotFoundError(
            f"{missing[0].path} must be in {home}: it is ZEROTAIL_DATA, which is never written to; "
            "got no such file"
        )
    return [download(file, home) for file in files]


def download(file: Remote, folder: Path) -> Path:
    """The file below this folder; downloaded, unless it is there."""
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with _alone(part) as opened:
        there = path.is_file()  # another process was faster
        if not there:
            _transfer(file, part, opened)
        if os.name == "nt":  # an open file can be neither moved nor removed there; it has no lock
            opened.close()
        if there:
            part.unlink(missing_ok=True)
            _tag(part).unlink(missing_ok=True)
        else:
            found = _digest(part)
            wanted = file.sha256 or _recorded(path)
            if wanted is not None and found != wanted:
                part.unlink()
                _tag(part).unlink(missing_ok=True)
                raise OSError(
                    f"{file.url} must have the SHA-256 {wanted}; got {found}, and kept nothing of it"
                )
            _tag(part).unlink(missing_ok=True)
            record = path.with_name(path.name + ".sha256.part")
            record.write_text(f"{found}  {path.name}\n", encoding="ascii")
            record.replace(_record(path))
            part.replace(path)
    verify(path)
    return path


def open_stream(path: Path) -> IO[bytes]:
    """A file for reading, decompressed where its name ends in .gz, .bz2 or .xz. For `whole` to look after."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    return cast("IO[bytes]", opener(path, "rb"))


@contextlib.contextmanager
def whole(path: Path) -> Iterator[None]:
    """Turns what decompression says of a file that is cut off or damaged into an error naming the file."""
    try:
        yield
    except EOFError as error:
        raise ValueError(f"{path} must be a whole file; got one that is cut off: {error}") from error
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a whole file; got a damaged one: {error}") from error
    except OSError as error:
        if error.errno is not None:  # bz2's errors have none
            raise
        raise ValueError(f"{path} must be a whole file; got a damaged one: {error}") from error


@contextlib.contextmanager
def open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A member of a zip file, read as a stream: nothing is extracted.

    An archive with any name that leaves its folder, or with a link, is refused all the same.
    """
    with whole(archive), zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            _safe(archive, info)
        try:
            member = opened.getinfo(name)
        except KeyError:
            raise ValueError(f"{archive} must hold {name}; got {', '.join(opened.namelist()[:9])}") from None
        with opened.open(member) as stream:
            yield stream


@contextlib.contextmanager
def open_data(path: Path, member: str) -> Iterator[IO[bytes]]:
    """The file as a stream, decompressed; of a zip file, this member. What is not whole is named."""
    with whole(path):
        if path.suffix == ".zip":
            with open_member(path, member) as stream:
                yield stream
        else:
            with open_stream(path) as stream:
                yield stream


def _safe(archive: Path, info: zipfile.ZipInfo) -> None:
    name = info.filename
    parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
    absolute = name.startswith(("/", "\\")) or bool(PureWindowsPath(name).drive)
    if ".." in parts or absolute or stat.S_ISLNK(info.external_attr >> 16):
        raise ValueError(f"{archive} must hold files below its own folder; got {name!r}")


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[IO[bytes]]:
    """The partial file, open for appending, while no other process has it."""
    while True:
        with open(part, "ab") as file:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    same = os.path.samestat(os.fstat(file.fileno()), part.stat())
                except FileNotFoundError:  # it was moved to its place while we waited
                    same = False
                if not same:
                    continue
            try:
                yield file
            finally:
                _leave(part, file)
            return


def _leave(part: Path, file: IO[bytes]) -> None:
    """Remove the partial file if nothing was written; by now the name may be another process's file."""
    if file.closed:
        return
    file.flush()
    mine = os.fstat(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        if mine.st_size == 0 and os.path.samestat(mine, part.stat()):
            if os.name == "nt":
                file.close()
            part.unlink()


def _tag(part: Path) -> Path:
    """What identifies the version of the file that `part` is the beginning of: a strong ETag, or a date."""
    return part.with_name(part.name + ".tag")


def _continues(file: Remote, part: Path) -> bool:
    """Whether a download can go on: else two versions could be glued together, and nothing would tell."""
    return file.sha256 is not None or _tag(part).is_file()


def _transfer(file: Remote, part: Path, out: IO[bytes]) -> None:
    """Complete the partial file. A connection that breaks is opened again where it broke."""
    failures, most, bar = 0, out.seek(0, os.SEEK_END), None
    try:
        while True:
            out.flush()
            start = out.seek(0, os.SEEK_END)
            request = urllib.request.Request(file.url, headers={"User-Agent": "zerotail"})
            tag = _tag(part).read_text(encoding="utf-8") if _tag(part).is_file() else None
            if not _continues(file, part):
                start = 0
            if start:
                request.add_header("Range", f"bytes={start}-")
                if tag:
                    request.add_header("If-Range", tag)
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                    start, total = _range(response, start)
                    out.truncate(start)
                    out.seek(start)
                    _keep_tag(part, response)
                    if bar is None:
                        bar = _bar(file.path, total)
                    bar.n = start
                    while block := response.read(_BLOCK):
                        out.write(block)
                        start += len(block)
                        bar.update(len(block))
                    if total is None or start == total:
                        out.flush()
                        return
                    problem: Exception = EOFError(f"the connection closed after {start} of {total} bytes")
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 416 and start:  # more than there is: begin again
                    out.truncate(0)
                    _tag(part).unlink(missing_ok=True)
                    problem = error
                elif error.code < 500 and error.code not in {408, 429}:
                    raise _unreachable(file, error) from error
                else:
                    problem = error
            except (OSError, http.client.HTTPException) as error:
                problem = error
            out.flush()
            kept = out.seek(0, os.SEEK_END)
            # What is read again is no progress: a break at the same place each time must have an end.
            failures = 0 if kept > most else failures + 1
            most = max(most, kept)
            if failures >= RETRIES:
                raise _unreachable(file, problem, kept if _continues(file, part) else 0) from problem
            time.sleep(DELAY * 2**failures if failures else 0)
    finally:
        if bar is not None:
            bar.close()


def _range(response: Any, start: int) -> tuple[int, int | None]:
    """Where the bytes of this response begin, and the size of the whole file, if it is said."""
    if response.status == 206:
        told = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if told and int(told[1]) == start:
            return start, None if told[2] == "*" else int(told[2])
        raise http.client.HTTPException(
            f"another range than was asked for: {response.headers['Content-Range']}"
        )
    length = response.headers.get("Content-Length")
    return 0, int(length) if length else None


def _keep_tag(part: Path, response: Any) -> None:
    etag = response.headers.get("ETag")
    tag = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
    if tag:
        _tag(part).write_text(tag, encoding="utf-8")
    else:
        _tag(part).unlink(missing_ok=True)


def _unreachable(file: Remote, error: Exception, kept: int = 0) -> OSError:
    again = f" ({kept} bytes are kept; the next call goes on from there)" if kept else ""
    return OSError(
        f"{file.url} must be reachable; got {error}{again}. A folder that holds {file.path} can be named "
        "instead: data_home= or ZEROTAIL_DATA"
    )


class _NoBar:
    n = 0

    def update(self, n: int) -> None: ...

    def close(self) -> None: ...


def _bar(name: str, total: int | None) -> Any:
    if find_spec("tqdm") is None:
        return _NoBar()
    from tqdm import tqdm

    # disable=None: no bar where nobody looks
    return tqdm(desc=name, total=total, unit="B", unit_scale=True, unit_divisor=1024, disable=None)


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _recorded(path: Path) -> str | None:
    """The checksum of the download, if the file was downloaded."""
    record = _record(path)
    return record.read_text(encoding="ascii").split()[0] if record.is_file() else None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path) -> None:
    wanted = _recorded(path)
    if wanted is not None and (found := _digest(path)) != wanted:
        raise OSError(
            f"{path} must have the SHA-256 of its download, {wanted}; got {found}: "
            "delete it, to download it again"
        )
