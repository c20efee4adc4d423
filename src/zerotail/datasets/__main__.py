"""List, fetch and describe the data sets: `python -m zerotail.datasets`."""

from __future__ import annotations

import argparse
import sys

from zerotail.datasets import _fetch, glove, mulan, rcv1, snli
from zerotail.datasets._registry import Entry

MODULES = (mulan, rcv1, snli, glove)


def _list(entries: dict[str, Entry], data_home: str | None) -> None:
    for entry in entries.values():
        try:
            entry.files(data_home=data_home, download_if_missing=False)
            state = "here"
        except FileNotFoundError:
            state = f"not here, {entry.size}"
        except (OSError, ValueError) as error:
            state = f"damaged: {error}"
        print(f"{entry.name:10} {entry.summary} ({state})")
    print(f"\nLooked in {', then '.join(map(str, _fetch.folders(data_home)))}")


def main(arguments: list[str] | None = None) -> int:
    entries = {entry.name: entry for module in MODULES for entry in module.ENTRIES}
    parser = argparse.ArgumentParser(
        prog="python -m zerotail.datasets", description=__doc__.partition(":")[0]
    )
    parser.add_argument("--data-home", metavar="DIR", help="default: ZEROTAIL_DATA, then the cache")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="what there is, and what is here already (the default)")
    for command, text in (("fetch", "download what is not here"), ("describe", "say what is in it")):
        sub = commands.add_parser(command, help=text)
        sub.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(entries)} or all")
    options = parser.parse_args(arguments)
    try:
        if options.command in {None, "list"}:
            _list(entries, options.data_home)
            return 0
        unknown = [name for name in options.names if name not in {*entries, "all"}]
        if unknown:
            parser.error(f"NAME must be {', '.join(entries)} or all; got {unknown[0]}")
        for name in entries if "all" in options.names else options.names:
            if options.command == "fetch":
                for path in entries[name].files(data_home=options.data_home, download_if_missing=True):
                    print(path)
            else:
                print(f"{name}: {entries[name].load(data_home=options.data_home).DESCR}")
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
