"""What is read from a file is of the declared types, or is refused with the field's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from ddt_notebook.model.codec import FormatError, from_plain, to_plain


@dataclass(frozen=True, kw_only=True)
class Leaf:
    name: str
    at_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tree:
    count: int
    kind: Literal["oak", "elm"] = "oak"
    leaves: tuple[Leaf, ...] = ()
    first: Leaf | None = None
    places: dict[int, tuple[int, ...]] = field(default_factory=dict)
    ratio: float = 0.5
    notes: list[str] = field(default_factory=list)


FULL = Tree(
    count=2,
    kind="elm",
    leaves=(Leaf(name="a", at_s=1.5), Leaf(name="b")),
    first=Leaf(name="a"),
    places={3: (0, 1)},
    ratio=2.0,
    notes=["x"],
)


@pytest.mark.parametrize("tree", [FULL, Tree(count=1)])
def test_round_trip(tree: Tree) -> None:
    assert from_plain(Tree, to_plain(tree)) == tree


def test_fields_with_their_default_are_left_out() -> None:
    assert to_plain(Tree(count=1)) == {"count": 1, "places": {}, "notes": []}
    assert to_plain(FULL)["leaves"] == [{"name": "a", "at_s": 1.5}, {"name": "b"}]


def test_unknown_fields_are_ignored_at_any_depth() -> None:
    plain = to_plain(FULL) | {"later": 1}
    plain["leaves"][0]["later"] = {"x": []}
    assert from_plain(Tree, plain) == FULL


def test_a_whole_number_is_accepted_for_a_float() -> None:
    tree = from_plain(Tree, {"count": 1, "ratio": 2})
    assert isinstance(tree.ratio, float)


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ([], "^Tree is not an object$"),
        ({}, "^Tree: .*'count'"),
        ({"count": True}, "^Tree.count is True, not int$"),
        ({"count": "1"}, "^Tree.count is '1', not int$"),
        ({"count": None}, "^Tree.count is None, not int$"),
        ({"count": 1, "kind": "ash"}, "^Tree.kind is 'ash', not one of oak, elm$"),
        ({"count": 1, "ratio": True}, "^Tree.ratio is True, not float$"),
        ({"count": 1, "leaves": {"name": "a"}}, "^Tree.leaves is not a list$"),
        ({"count": 1, "leaves": [{"name": 3}]}, "^Tree.leaves.name is 3, not str$"),
        ({"count": 1, "first": {}}, "^Tree.first: .*'name'"),
        ({"count": 1, "places": [1]}, "^Tree.places is not an object$"),
        ({"count": 1, "places": {"3": ["x"]}}, "^Tree.places is 'x', not int$"),
    ],
)
def test_a_wrong_type_is_named(plain: Any, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        from_plain(Tree, plain)


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(FormatError, match=r"^Tree[.]places has the key 'x', not a number$"):
        from_plain(Tree, {"count": 1, "places": {"x": [1]}})
