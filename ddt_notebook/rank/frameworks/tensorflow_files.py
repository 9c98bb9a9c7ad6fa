"""Notes the files that TensorFlow and Keras save models to, and the summaries that are written.

The files join those of ``torch.save``. A summary is a number with a name and a step, of which
TensorBoard draws a curve for each folder.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from ...model import Position
from ...model.checkpoints import CheckpointUse
from ...model.tensorflow import WrittenSummary
from ..after_import import AfterImport
from ..probes import checkpoints
from ..user_signals import left_out
from .tensorflow_lines import users_position

#: Keras' class of models, and those of its methods that write a file.
_MODEL, _SAVES = "tf_keras.src.engine.training", ("save", "save_weights")
#: Names of the argument that says where to.
_FILES = ("filepath", "file_prefix", "export_dir")
#: Curves and writers that are kept, and points of a curve.
_MOST, _MOST_POINTS = 50, 4


class FileRecord:
    """The summaries of the current run; saved files go to the record of checkpoints."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], WrittenSummary] = {}
        #: The folder of each writer of summaries, by the number of its resource, which lives on.
        self._folders: dict[int, tuple[Any, str]] = {}
        self._saves = False  # whether a call that saves runs now

    def begin_run(self) -> None:
        """Forget the run before; its writers may go on."""
        self._written.clear()

    def observed(self) -> tuple[WrittenSummary, ...]:
        """The summaries since the run began."""
        return tuple(self._written.values())

    def install(self) -> None:
        """Note files and summaries from now on."""
        from tensorflow.python.checkpoint import checkpoint
        from tensorflow.python.ops import gen_summary_ops, summary_ops_v2
        from tensorflow.python.saved_model import save

        self._wrap(checkpoint.TrackableSaver, "save")
        self._wrap(save, "save_and_return_nodes")
        AfterImport(_MODEL, self._watch_model).install()
        creates, writes = gen_summary_ops.create_summary_file_writer, gen_summary_ops.write_summary
        state = summary_ops_v2._summary_state

        @functools.wraps(creates)
        def create_summary_file_writer(writer: Any, logdir: Any, *args: Any, **kwargs: Any) -> Any:
            with left_out():  # a folder that is known in a graph only
                folder = os.path.realpath(os.fsdecode(logdir.numpy()))
                if len(self._folders) == _MOST:
                    del self._folders[next(iter(self._folders))]
                self._folders[id(writer)] = writer, folder
            return creates(writer, logdir, *args, **kwargs)

        @functools.wraps(writes)
        def write_summary(
            writer: Any, step: Any, tensor: Any, tag: Any, *args: Any, **kwargs: Any
        ) -> Any:
            with left_out():  # a step or a name that is not known here
                self._note(state.writer, step, tensor, tag)
            return writes(writer, step, tensor, tag, *args, **kwargs)

        gen_summary_ops.create_summary_file_writer = create_summary_file_writer
        gen_summary_ops.write_summary = write_summary

    def _watch_model(self, module: ModuleType) -> None:
        model = getattr(module, "Model", None)
        for name in _SAVES if model is not None else ():
            if hasattr(model, name):
                self._wrap(model, name)

    def _wrap(self, owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            named = (kwargs[one] for one in _FILES if one in kwargs)
            given = args[1] if len(args) > 1 else next(named, None)
            if self._saves or not isinstance(given, (str, os.PathLike)):
                return original(*args, **kwargs)
            where = users_position(sys._getframe(1))
            self._saves, began_s, done = True, time.monotonic(), False
            try:
                made = original(*args, **kwargs)
                done = True
                return made
            finally:
                self._saves = False
                _saved(os.fspath(given), where, began_s, done=done)

        setattr(owner, name, call)

    def _note(self, writer: Any, step: Any, tensor: Any, tag: Any) -> None:
        from tensorflow.python.framework import tensor_util

        name = tag if isinstance(tag, (str, bytes)) else tensor_util.constant_value(tag)
        known = self._folders.get(id(getattr(writer, "_resource", None)))
        if name is None or known is None:
            return
        name = name.item() if hasattr(name, "item") else name
        key = known[1], name.decode() if isinstance(name, bytes) else str(name)
        found = self._written.get(key)
        if found is None:
            if len(self._written) == _MOST:
                return
            where = users_position(sys._getframe(2))
            found = self._written[key] = WrittenSummary(folder=key[0], name=key[1], where=where)
        if len(found.steps) < _MOST_POINTS and hasattr(tensor, "numpy") and tensor.shape.rank == 0:
            steps, numbers = (*found.steps, int(step)), (*found.numbers, float(tensor.numpy()))
            self._written[key] = replace(found, steps=steps, numbers=numbers)


def _saved(given: str, where: Position | None, began_s: float, *, done: bool) -> None:
    checkpoints.RECORD.add(
        CheckpointUse(
            action="save",
            path=os.path.realpath(given),
            where=where,
            began_s=began_s,
            ended_s=time.monotonic(),
            done=done,
        )
    )
