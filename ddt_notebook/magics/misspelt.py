"""Names the magic that is meant where a cell has misspelt one, below IPython's own error."""

from __future__ import annotations

import re

from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from ..spelling import similar_names

#: IPython's "Line magic function `%ddt_strat` not found." and "Cell magic `%%ddt_dbug` not found."
_NOT_FOUND = re.compile(r"`(%%?)(ddt\w*)` not found\.$")


class MisspeltMagics:
    """Looks at the error of each cell.

    Parameters
    ----------
    shell
        The notebook's shell.
    names
        The names of the magics, by their kind: ``"line"`` and ``"cell"``.
    """

    def __init__(self, shell: InteractiveShell, names: dict[str, list[str]]) -> None:
        self._shell = shell
        self._names = names

    def begin(self) -> None:
        """Look at each cell from now on."""
        self._shell.events.register("post_run_cell", self._look)

    def end(self) -> None:
        """Look at no further cell."""
        self._shell.events.unregister("post_run_cell", self._look)

    def _look(self, result: ExecutionResult) -> None:
        error = result.error_in_exec
        found = _NOT_FOUND.search(str(error)) if isinstance(error, UsageError) else None
        if found is None:
            return
        sign, name = found.groups()
        known = self._names["line" if sign == "%" else "cell"]
        for similar in similar_names(name, known):
            print(f"a similar magic exists: {sign}{similar}")
