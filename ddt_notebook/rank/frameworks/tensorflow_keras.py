"""Has ``tensorflow.keras`` be the Keras for which the program asked.

TensorFlow decides that as it is imported, and a rank finds it imported before the program sets
``TF_USE_LEGACY_KERAS``. Without this, ``from tensorflow.keras import layers`` would give layers of
Keras 3 for models of ``tf_keras``, which ``tf.keras`` gives.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

_NAME, _ASKS, _YES = "tensorflow.keras", "TF_USE_LEGACY_KERAS", ("true", "True", "1")
#: Where the module lies within ``tf_keras``.
_WITHIN = Path("api", "_v2")


class KerasOfProgram:
    """A finder on ``sys.meta_path`` that finds nothing itself and looks where others will find."""

    def install(self) -> None:
        """Wait for the first import, if there was none yet."""
        if _NAME not in sys.modules:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Always None; before Keras is imported first, the place of ``tf_keras`` is put first.

        Parameters
        ----------
        name
            The full name of a module.
        path
            Where TensorFlow's modules are searched.
        target
            Not used.
        """
        if name != _NAME:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        if os.environ.get(_ASKS) in _YES and isinstance(path, list):
            found = importlib.util.find_spec("tf_keras")
            for place in found.submodule_search_locations or () if found is not None else ():
                path.insert(0, str(Path(place) / _WITHIN))
        return None
