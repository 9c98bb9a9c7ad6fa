"""How a script ended itself."""

from __future__ import annotations

import argparse
import sys

import pytest

from ddt_notebook.rank.shell import _why_it_exits


def _script() -> None:
    try:
        _ = {}["lr"]
    except KeyError:
        sys.exit(1)


def test_a_script_that_handled_an_exception_ended_because_of_it() -> None:
    with pytest.raises(SystemExit) as ended:
        _script()
    assert isinstance(_why_it_exits(ended.value), KeyError)


def test_a_parser_of_arguments_handles_an_exception_of_its_own() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--epochs", "ten"])
    assert _why_it_exits(ended.value) is None
