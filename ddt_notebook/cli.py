"""The command ``ddt-notebook``: the Python API from a shell.

Exit status: 0 if nothing was found, 1 if something was, 2 if the command could not be carried out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import taxonomy
from .demo import DemoError, run_demo, use_colour
from .diagnose import diagnose
from .model.codec import FormatError
from .model.snapshot import Snapshot
from .views.explanation import ExplanationView
from .views.report import show


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (taxonomy.UnknownSymptom, FormatError, DemoError) as error:
        message = str(error)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except KeyboardInterrupt:
        message = "interrupted"
    print(f"ddt-notebook: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddt-notebook", description="A debugging assistant for distributed PyTorch training."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="run the quick start and print what it finds")
    demo.add_argument(
        "--html",
        type=Path,
        default=Path("demo.html"),
        metavar="PATH",
        help="where to write the executed notebook (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)

    saved = commands.add_parser("diagnose", help="say what a saved run shows")
    saved.add_argument("snapshot", type=Path, metavar="SNAPSHOT.ddt.json")
    saved.add_argument("--json", action="store_true", help="print the report as JSON")
    saved.set_defaults(run=_diagnose)

    explain = commands.add_parser("explain", help="explain a symptom of the taxonomy")
    explain.add_argument("code", metavar="CODE", help="such as D.2.1")
    explain.add_argument("--json", action="store_true", help="print the explanation as JSON")
    explain.set_defaults(run=_explain)
    return parser


def _demo(options: argparse.Namespace) -> int:
    html = options.html.resolve()
    if not html.parent.is_dir():
        raise DemoError(f"the folder {html.parent} does not exist")
    run_demo(html)
    print(f"the executed notebook: {html}")
    return 0


def _diagnose(options: argparse.Namespace) -> int:
    snapshot = Snapshot.load(options.snapshot)
    report = diagnose(snapshot)
    if options.json:
        _print_json(report.to_json())
    else:
        print(show(report, snapshot).to_terminal(colour=use_colour(sys.stdout)))
    return 0 if report.ok else 1


def _explain(options: argparse.Namespace) -> int:
    symptom, fixes = taxonomy.symptom(options.code), taxonomy.fixes(options.code)
    if options.json:
        plain = [dataclasses.asdict(fix) for fix in fixes]
        _print_json({**dataclasses.asdict(symptom), "fixes": plain})
    else:
        print(ExplanationView(symptom, fixes).to_text())
    return 0


def _print_json(plain: dict[str, Any]) -> None:
    print(json.dumps(plain, indent=2, ensure_ascii=False))
