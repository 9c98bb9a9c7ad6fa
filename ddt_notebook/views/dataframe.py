"""Rows as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame; imports pandas on first use."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))
