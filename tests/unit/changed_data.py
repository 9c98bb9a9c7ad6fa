"""Random changes to plain data and to bytes, the same ones for the same seed."""

from __future__ import annotations

import copy
import random
from typing import Any

DEEP: list[Any] = []
for _ in range(100):
    DEEP = [DEEP]
STRANGE: tuple[Any, ...] = (
    None, True, "", "x", "\ud800", "\0", "\x1b]0;title\x07", "<script>", 0, -1, 1.5, -1e9, 10**12,
    2**63, 10**30, 10**400, 1e38, 1e308, float("nan"), float("inf"), float("-inf"), [], {}, [[]],
    {"": None}, DEEP,
)  # fmt: skip


def changed(plain: Any, random_: random.Random, changes: int = 1) -> Any:
    """A copy of JSON data in which some values, entries or keys are other ones."""
    result = [copy.deepcopy(plain)]
    for _ in range(changes):
        places = [(result, 0), *_places(result[0])]
        holder, key = random_.choice(places)
        if key not in holder if isinstance(holder, dict) else key >= len(holder):
            continue
        match random_.randrange(5):
            case 0 if len(places) > 1 and holder is not result:
                del holder[key]
            case 1:
                other, where = random_.choice(places)
                holder[key] = copy.deepcopy(other[where])
            case 2 if isinstance(holder, list) and holder is not result:
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3 if isinstance(holder[key], (int, float)):
                holder[key] = random_.choice((-1, 1000)) * holder[key]
            case _:
                holder[key] = copy.deepcopy(random_.choice(STRANGE))
    return result[0]


def _places(plain: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    rest = [plain]
    while rest:
        one = rest.pop()
        if isinstance(one, (dict, list)):
            for key, value in one.items() if isinstance(one, dict) else enumerate(one):
                found.append((one, key))
                if isinstance(value, (dict, list)):
                    rest.append(value)
    return found


def bytes_changed(data: bytes, random_: random.Random) -> bytes:
    """Bytes of which some are other ones, are missing, or are there twice; at times cut short."""
    new = bytearray(data)
    for _ in range(random_.choice((1, 5, 50))):
        at = random_.randrange(len(new) or 1)
        match random_.randrange(3):
            case 0:
                new[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                del new[at : at + random_.randrange(20)]
            case _:
                new[at:at] = new[at : at + random_.randrange(80)]
    if random_.random() < 0.1:
        del new[random_.randrange(len(new) or 1) :]
    return bytes(new)
