"""Another name of `ddt_notebook.formatting`, for rules that still write English."""

from __future__ import annotations

from ddt_notebook.formatting import agree, count, listing, rank_list, ranks_text, seconds

__all__ = ["agree", "count", "listing", "rank_list", "ranks_text", "seconds"]
