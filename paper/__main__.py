"""Reproduce the figures and tables of the paper: `python -m paper NAME`, `python -m paper all`."""

import argparse
import ast
import dataclasses
import os
import re
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from paper import _report, _run

HERE = Path(__file__).resolve().parent
# What needs no download, with the settings that make it quick.
DEMO = ("fig1", "fig2", "fig3", "bundled")


def artefacts() -> list[str]:
    """A file of this folder is an artefact if its name is fig or tab and a number."""
    return sorted(path.stem for path in HERE.glob("*.py") if re.fullmatch(r"(fig|tab)\d+", path.stem))


def settings_of(module: ModuleType, chosen: str, changes: list[str]) -> Any:
    """The paper's settings, or those of a quick run, with the changes of --set."""
    settings = getattr(module, chosen, None) if chosen else None
    settings = module.Settings() if settings is None else settings
    fields = {field.name for field in dataclasses.fields(settings)}
    values: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or name not in fields:
            raise ValueError(
                f"--set must be NAME=VALUE with a name of {', '.join(sorted(fields))}; got {change}"
            )
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[name] = text
        if not isinstance(values[name], type(getattr(settings, name)) | int):
            raise ValueError(f"--set {name} must be like {getattr(settings, name)!r}; got {text}")
    return dataclasses.replace(settings, **values)


def make(name: str, options: argparse.Namespace, chosen: str, out: Path) -> bool:
    """Compute and show one artefact. False if it was left for a run of its own."""
    module = import_module(f"paper.{name}")
    settings = settings_of(module, chosen, options.set)
    cells = module.cells(settings)
    cache = options.out / "cache" / getattr(module, "CACHE", name)
    if (
        options.names == ["all"]
        and not getattr(module, "IN_ALL", True)
        and not chosen
        and any(_run.load(cell, cache) is None for cell in cells)
    ):
        print(f"\n{module.TITLE}\nleft out: it takes long. Run it alone: python -m paper {name}")
        return False
    start = time.perf_counter()
    results = _run.run(name, cells, cache, options.jobs, getattr(module, "PARALLEL", True), options.fresh)
    page = _report.Page(name, module.TITLE, out, _run.published(name))
    module.render(settings, {cell: result["value"] for cell, result in results.items()}, page)
    page.finish(dataclasses.asdict(settings), results, chosen == "SMOKE")
    print(f"\n{module.TITLE}", *page.lines, sep="\n")
    print(f"{time.perf_counter() - start:.0f} s; {', '.join(path.name for path in page.files)}")
    return True


def rest() -> str:
    """What the demo leaves out."""
    modules = {name: import_module(f"paper.{name}") for name in artefacts() if name not in DEMO}
    quick = [module.TITLE for module in modules.values() if getattr(module, "IN_ALL", True)]
    long = [name for name, module in modules.items() if not getattr(module, "IN_ALL", True)]
    return (
        "`python -m paper all` adds figure 3 in full and\n"
        + "".join(f"  {title}\n" for title in quick)
        + "It takes a quarter of an hour on two cores, and needs data: `python -m zerotail.datasets fetch\n"
        "all` downloads them, or ZEROTAIL_DATA names a folder that has them.\n"
        f"`python -m paper {' '.join(long)}` trains the networks of tables 3 and 4, in about an hour."
    )


def main(arguments: list[str] | None = None) -> int:
    names = artefacts()
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}, demo or all")
    parser.add_argument(
        "--smoke", action="store_true", help="small settings that run in seconds and mean nothing"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the data, as ZEROTAIL_DATA")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: the cores)"
    )
    parser.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change one setting")
    parser.add_argument("--fresh", action="store_true", help="compute again what is kept")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if not options.names:
        for name in names:
            print(f"{name:6} {import_module(f'paper.{name}').TITLE}")
        print("demo   what needs no download, in a minute\nall    everything above")
        return 0
    unknown = [name for name in options.names if name not in {*names, "bundled", "demo", "all"}]
    if unknown:
        parser.error(f"NAME must be {', '.join(names)}, demo or all; got {unknown[0]}")
    if options.set and (len(options.names) != 1 or options.names[0] not in {*names, "bundled"}):
        parser.error("--set must come with one artefact")
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1; got {options.jobs}")
    if options.data is not None:
        os.environ["ZEROTAIL_DATA"] = str(options.data.resolve())

    demo = options.names == ["demo"]
    chosen = "SMOKE" if options.smoke else "DEMO" if demo else ""
    out = options.out / chosen.lower() if chosen else options.out
    wanted = [*DEMO] if demo else names if "all" in options.names else options.names
    missing: list[str] = []
    start = time.perf_counter()
    for name in wanted:
        try:
            make(name, options, chosen, out)
        except FileNotFoundError as error:
            missing.append(f"{name} needs data: {error}")
        except (ImportError, OSError) as error:
            missing.append(f"{name}: {error}")
        except ValueError as error:
            if not options.set:
                raise
            parser.error(str(error))
    report = _report.assemble(out, [*names, "bundled"])
    if demo:
        print(f"\n{rest()}")
    print(f"\n{(time.perf_counter() - start) / 60:.1f} minutes. Report: {report.resolve()}")
    for line in missing:
        print(line, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
