"""The files of a project that a program imports. They are read, never run."""

from __future__ import annotations

import ast
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .parse import Document
from .tree import Tree, tree_of

#: The most files that are read, the longest one in characters, and the most characters of all.
_FILES, _LONGEST, _CHARACTERS = 32, 300_000, 500_000
_FOLDERS: Final = 5  #: An absolute import is looked up in this many folders, upwards.
#: Only files in which this occurs are read: other files do nothing that concerns other ranks.
_OF_INTEREST = re.compile(r"distributed|rank|set_device|world_size|LOCAL_|barrier|all_reduce")
#: The line numbers of each further file begin this much higher, so that a number names its file.
_LINES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FromProject:
    """A module of the project, or a name in it, that a program has imported.

    Attributes
    ----------
    file
        The module's file.
    name
        The name in the module; empty for the module itself.
    """

    file: Path
    name: str = ""


class Project:
    """The modules that a file can import from the folders around it.

    Parameters
    ----------
    file
        The file whose imports are followed.
    """

    def __init__(self, file: Path) -> None:
        self.file = file.absolute()
        self._documents: dict[Path, Document | None] = {}
        self._trees: dict[Path, Tree] = {}
        self._characters = 0
        self._found: dict[tuple[str, int, Path], Path | None] = {}

    # -- where a module is -------------------------------------------------------------------------

    def find(self, module: str, level: int, importer: Path) -> Path | None:
        """The file of a module; None if it is not of this project.

        Parameters
        ----------
        module, level
            As in `ast.ImportFrom`: the dotted name, and the number of dots before it.
        importer
            The file that imports it.
        """
        key = module, level, importer.parent
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def _look_up(self, module: str, level: int, folder: Path) -> Path | None:
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return _module_file(folder, module)
        root = module.partition(".")[0]
        if root == "torch" or root in sys.stdlib_module_names:
            return None
        for around in [self.file.parent, *folder.parents, folder][: _FOLDERS + 1]:
            if around.name != "site-packages" and (found := _module_file(around, module)):
                return found
        return None

    @staticmethod
    def submodule(package: Path, name: str) -> Path | None:
        """The file of a module inside a package."""
        return _module_file(package.parent, name) if package.name == "__init__.py" else None

    # -- what has been read ------------------------------------------------------------------------

    def tree(self, file: Path) -> Tree | None:
        """The tree of a module; None if it is not Python, or if too much has been read."""
        if file not in self._documents:
            self._documents[file] = self._read(file)
        document = self._documents[file]
        tree = tree_of(document) if document is not None else None
        if tree is not None:
            self._trees[file] = tree
        return tree

    def forms_group(self, tree: Tree) -> bool:
        """Whether a module that the program imports directly may form the process group."""
        found: set[Path | None] = set()
        for node in tree.of_kind(ast.ImportFrom):
            found.add(self.find(node.module or "", node.level, self.file))
        for one in (alias for node in tree.of_kind(ast.Import) for alias in node.names):
            found.add(self.find(one.name, 0, self.file))
        for file in sorted(file for file in found if file is not None):
            if file not in self._documents:
                self._documents[file] = self._read(file)
            document = self._documents[file]
            if document is not None and "init_process_group(" in document.source:
                return True
        return False

    def _read(self, file: Path) -> Document | None:
        if len(self._documents) >= _FILES or self._characters >= _CHARACTERS or file == self.file:
            return None
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        if len(text) > _LONGEST or not _OF_INTEREST.search(text):
            return None
        self._characters += len(text)
        name = Path(os.path.relpath(file, self.file.parent)).as_posix()
        return Document(name, text, len(self._documents) * _LINES + _LINES + 1)

    @property
    def trees(self) -> list[Tree]:
        """The trees of the modules that the program uses."""
        return list(self._trees.values())

    def document(self, line: int) -> Document | None:
        """The document to which a line number belongs; None for a line of the file itself."""
        known = (one for one in self._documents.values() if one is not None)
        return next((one for one in known if one.first_line // _LINES == line // _LINES), None)

    @staticmethod
    def own_line(line: int) -> int:
        """The number of a line in its own file."""
        return line % _LINES

    @staticmethod
    def is_elsewhere(line: int) -> bool:
        """Whether a line belongs to another file than the one whose imports are followed."""
        return line >= _LINES


def _module_file(folder: Path, module: str) -> Path | None:
    """The file of a module below a folder: ``a/b.py`` or ``a/b/__init__.py`` for ``a.b``."""
    base = folder.joinpath(*module.split(".")) if module else folder
    candidates = [base.with_suffix(".py")] if module else []
    candidates.append(base / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)
