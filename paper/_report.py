"""What an artefact shows: tables and figures, as text, CSV, PNG, PDF, JSON, and in one HTML page for all."""

import base64
import csv
import html
import io
import json
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from paper._run import write

COLORS = {"logistic": "#5b7a3a", "softmax": "#9a6a00", "sparsemax": "#0b5fa5"}
LIBRARIES = ("zerotail", "numpy", "scipy", "scikit-learn", "matplotlib", "torch")


@dataclass(frozen=True)
class Beside:
    """Our number beside the paper's. `far` is the difference from which on it is marked."""

    ours: float
    paper: float | None
    far: float = 1.5
    digits: int = 2

    def difference(self) -> float | None:
        return None if self.paper is None else round(self.ours, self.digits) - self.paper

    def marked(self) -> bool:
        difference = self.difference()
        return difference is not None and abs(difference) > self.far + 1e-9


Entry = str | int | float | Beside | None


@dataclass
class Table:
    columns: list[str]
    rows: list[list[Entry]]
    caption: str = ""
    digits: int = 2  # of numbers that are not beside another


def number(value: Entry, digits: int = 2) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10000 else str(value)
    assert isinstance(value, float)
    small = digits > 0 and 0 < abs(value) < 10.0 ** (1 - digits)  # for as many digits as the rest
    return f"{value:#.{digits}g}" if small else f"{value:.{digits}f}"


def plain(value: Entry, digits: int) -> str:
    """As it stands in the terminal: ours (paper's), with ! where they differ by much."""
    if not isinstance(value, Beside):
        return number(value, digits)
    text = number(float(value.ours), value.digits)
    if value.paper is None:
        return text
    return f"{text} ({value.paper:.{value.digits}f}){'!' if value.marked() else ' '}"


def _markup(value: Entry, digits: int) -> str:
    if not isinstance(value, Beside):
        return f"<td{'' if isinstance(value, str) else ' class=n'}>{html.escape(number(value, digits))}</td>"
    text = number(float(value.ours), value.digits)
    if value.paper is None:
        return f"<td class=n>{text}</td>"
    difference = value.difference()
    same = abs(difference) < 0.5 * 10**-value.digits
    kind = "n far" if value.marked() else "n same" if same else "n"
    delta = "=" if same else f"{difference:+.{value.digits}f}"
    return (
        f'<td class="{kind}"><b>{text}</b> <span class=delta>{delta}</span><br>'
        f"<span class=paper>{value.paper:.{value.digits}f}</span></td>"
    )


@dataclass
class Page:
    """The part of the report that belongs to one artefact. `published` holds the paper's numbers for it."""

    name: str
    title: str
    out: Path
    published: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)  # for the terminal
    parts: list[str] = field(default_factory=list)  # HTML
    tables: dict[str, Table] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def text(self, text: str) -> None:
        """A paragraph of plain text."""
        self.lines.append(text)
        self.parts.append(f"<p>{html.escape(text)}</p>")

    def markup(self, markup: str) -> None:
        """HTML as it is, for the report alone."""
        self.parts.append(markup)

    def table(self, name: str, table: Table) -> None:
        """A table, also written to NAME.csv."""
        self.tables[name] = table
        cells = [table.columns, *[[plain(value, table.digits) for value in row] for row in table.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
        self.lines += [""] + [table.caption] * bool(table.caption)
        for row in cells:
            first, rest = (
                row[0].ljust(widths[0]),
                [text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True)],
            )
            self.lines.append("  ".join([first, *rest]).rstrip())
        numeric = [not any(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
        head = "".join(
            f"<th{' class=n' * right}>{html.escape(column)}</th>"
            for column, right in zip(table.columns, numeric, strict=True)
        )
        body = "".join(
            f"<tr>{''.join(_markup(value, table.digits) for value in row)}</tr>\n" for row in table.rows
        )
        caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
        self.parts.append(
            f"<div class=scroll><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
            "</table></div>"
        )
        self._save(f"{name}.csv", _csv(table))

    def figure(self, name: str, figure: Figure, caption: str = "", dpi: int = 150) -> None:
        """A figure, also written to NAME.png and NAME.pdf. It is closed."""
        self.out.mkdir(parents=True, exist_ok=True)
        image = io.BytesIO()
        figure.savefig(image, dpi=dpi)
        figure.savefig(self.out / f"{name}.pdf", metadata={"CreationDate": None})
        plt.close(figure)
        (self.out / f"{name}.png").write_bytes(image.getvalue())
        self.files += [self.out / f"{name}.png", self.out / f"{name}.pdf"]
        data = base64.b64encode(image.getvalue()).decode()
        self.parts.append(
            f'<figure><img alt="{html.escape(self.title)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def finish(self, settings: dict[str, Any], results: dict[str, Any], smoke: bool) -> None:
        """Write NAME.json, and the artefact's part of the report."""
        minutes = sum(result.get("cpu_seconds", result["seconds"]) for result in results.values()) / 60
        told = {
            "artefact": self.name,
            "smoke": smoke,
            "settings": settings,
            "versions": versions(),
            "cpu_minutes": minutes,
            "results": results,
        }
        self._save(f"{self.name}.json", json.dumps(told, indent=1) + "\n")
        facts = [f"{key} = {value}" for key, value in settings.items()]
        made = ", ".join(f"{name} {number}" for name, number in versions().items())
        smoke_note = (
            "<p class=smoke>A smoke run: small settings, numbers without meaning.</p>" if smoke else ""
        )
        section = (
            f"<section id={self.name}><h2>{html.escape(self.title)}</h2>{smoke_note}\n"
            + "\n".join(self.parts)
            + f"\n<details><summary>Settings, versions, minutes</summary>"
            f"<p>{html.escape('; '.join(facts)) or 'none'}.</p>"
            f"<p>{html.escape(made)}.</p>"
            f"<p>{minutes:.1f} minutes of processor time, in {len(results)} cells. "
            f"Command: <code>python -m paper {self.name}</code></p></details></section>\n"
        )
        write(self.out / "sections" / f"{self.name}.html", section)

    def _save(self, name: str, text: str) -> None:
        write(self.out / name, text)
        self.files.append(self.out / name)


def _csv(table: Table) -> str:
    """Ours and the paper's in columns of their own."""
    beside = [any(isinstance(row[i], Beside) for row in table.rows) for i in range(len(table.columns))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head: list[str] = []
    for column, pair in zip(table.columns, beside, strict=True):
        head += [f"{column} (ours)", f"{column} (paper)"] if pair else [column]
    writer.writerow(head)
    for row in table.rows:
        cells: list[Any] = []
        for value, pair in zip(row, beside, strict=True):
            if isinstance(value, Beside):
                cells += [value.ours, value.paper]
            else:
                cells += [value, None] if pair else [value]
        writer.writerow(cells)
    return text.getvalue()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; margin: 0 auto;
       max-width: 72rem; padding: 1.5rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #d7dbe0; padding-top: 1.2rem; }
nav a { margin-right: 1em; } a { color: #0b5fa5; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption { color: #57606a; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e4e7eb; text-align: left; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; }
th { vertical-align: bottom; } th.n { text-align: right; }
td:first-child { white-space: nowrap; }
.paper { color: #57606a; font-size: 85%; } .paper::before { content: "paper "; }
.delta { color: #57606a; font-size: 85%; }
.far { background: #fff0e0; } .far .delta { color: #a33b00; font-weight: 600; } .same { background: #eaf6ea; }
.smoke { background: #fff0e0; padding: .4rem .8rem; }
details { color: #57606a; font-size: 90%; overflow-wrap: anywhere; }
code { font-size: 90%; }
"""


def assemble(out: Path, names: list[str]) -> Path:
    """One page, which needs no other file, of all sections that are there, in this order."""
    sections = {name: out / "sections" / f"{name}.html" for name in names}
    found = {name: path.read_text(encoding="utf-8") for name, path in sections.items() if path.is_file()}
    links = "".join(f"<a href=#{name}>{name}</a>" for name in found)
    page = (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>Sparsemax: the paper's figures and tables</title><style>{STYLE}</style></head><body>\n"
        "<h1>Sparsemax: the paper's figures and tables</h1>\n"
        "<p>Martins and Astudillo (2016), <i>From Softmax to Sparsemax</i>, computed again with zerotail. "
        "Numbers in bold are ours, beside the paper's; green: equal in all digits that the paper gives; "
        f"orange: further from it than the table says.</p>\n<nav>{links}</nav>\n"
        + "".join(found.values())
        + "</body></html>\n"
    )
    write(out / "report.html", page)
    return out / "report.html"
