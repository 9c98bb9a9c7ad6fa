"""What a rank holds of one parameter of a model that is divided among ranks."""

from __future__ import annotations

from dataclasses import dataclass

#: The elements of a part, from and to; in one dimension, or of the whole.
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A parameter, and what this rank holds of it.

    Attributes
    ----------
    size
        Elements of all of it.
    held
        The elements that this rank holds, in the layout of this module; None if it is not known
        which they are.
    count, item_bytes
        How many they are, and the bytes of each.
    spread, mesh, coordinate
        How it is placed, on which mesh, and where this rank is on it.
    """

    size: int
    held: Range | None
    count: int
    item_bytes: int
    spread: str = ""
    mesh: str = ""
    coordinate: tuple[int, ...] = ()
