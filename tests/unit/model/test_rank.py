"""What one rank did."""

from __future__ import annotations

import pytest

from ddt_notebook.model import RankError


@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        ("NameError", "name 'train' is not defined", "train"),
        ("NameError", "name 'a' is not defined. Did you mean: 'b'?", "a"),
        ("NameError", "free variable 'a' referenced before assignment", ""),
        ("ValueError", "name 'train' is not defined", ""),
    ],
)
def test_an_error_shows_the_name_that_is_not_defined(kind: str, message: str, name: str) -> None:
    assert RankError(type=kind, message=message).undefined_name == name
