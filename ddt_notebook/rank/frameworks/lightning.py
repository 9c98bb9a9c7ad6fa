"""What all ranks must give Lightning alike: the arguments of its Trainer, and what they log."""

from __future__ import annotations

import functools
import itertools
import json
import re
import sys
import weakref
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.lightning import (
    ARGUMENTS,
    FIT,
    LOG,
    LOGGED,
    LOGGED_AT,
    SYNC,
    SYNCED,
)
from ...wire.records import CallRecord
from ..after_import import AfterImport
from ..forked_ranks import REFUSED
from .framework import Framework
from .trainer_arguments import read, record_arguments

if TYPE_CHECKING:
    from ..probes.calls import CallLog
_TRAINER = "trainer.trainer"
_LOGGER = "trainer.connectors.logger_connector.logger_connector"
_RESULTS = "trainer.connectors.logger_connector.result"
_MODULE = "core.module"
#: The functions whose logged values are means over a rank's part of an evaluation.
_EVALUATION_STEPS = frozenset({"validation_step", "test_step"})
_UNUSED = re.compile(r"Parameters which did not receive grad for rank \d+: [\w., ]+")
#: Names, and changes of how they are logged, are noted up to these numbers.
_MOST_NAMES, _MOST_CHANGES = 64, 256
#: Launchers that start ranks as processes of their own, of Fabric and the Trainer.
_LAUNCHERS = tuple(
    f"{package}.strategies.launchers.multiprocessing"
    for package in (
        *("lightning.fabric", "lightning.pytorch"),
        *("lightning_fabric", "pytorch_lightning"),
    )
)


class Lightning(Framework):
    """Lightning's Trainer; its calls pass through ``torch.distributed``."""

    def install(self) -> None:
        """Refuse strategies that start ranks, such as ``ddp_spawn``, and keep names in messages."""
        for module in _LAUNCHERS:
            AfterImport(module, _refuse).install()
        for package in ("lightning.pytorch", "pytorch_lightning"):
            AfterImport(f"{package}.strategies.ddp", _keep_names).install()

    def watch(self, calls: CallLog) -> None:
        """Record arguments and names, once Lightning's Trainer is imported."""
        for package in ("lightning/pytorch/", "pytorch_lightning/"):
            prefix = package.replace("/", ".")
            for module, watch in _WATCHED:
                act = functools.partial(watch, calls, package)
                AfterImport(prefix + module, act).install()


def _refuse(module: ModuleType) -> None:
    """Have the launcher raise an error where the user chooses the strategy."""
    launcher = getattr(module, "_MultiProcessingLauncher", None)
    if launcher is None:
        return  # another version
    original = launcher.__init__

    @functools.wraps(original)
    def refuse_several(self: Any, strategy: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        if getattr(strategy, "num_processes", 2) > 1:
            raise RuntimeError(REFUSED)
        original(self, strategy, *args, **kwargs)

    launcher.__init__ = refuse_several


def _keep_names(module: ModuleType) -> None:
    """Keep the names of unused parameters, which Lightning's own message leaves out."""
    original = getattr(module, "_augment_message", None)
    if original is None:
        return  # another version

    @functools.wraps(original)
    def augment(exception: BaseException, pattern: str, new_message: str) -> None:
        found = _UNUSED.search(str(exception))
        named = f"{new_message}\n{found[0]}" if found else new_message
        original(exception, pattern=pattern, new_message=named)

    module._augment_message = augment  # type: ignore[attr-defined]


def _watch_fit(calls: CallLog, package: str, module: ModuleType) -> None:
    trainer = getattr(module, "Trainer", None)
    record_arguments(calls, trainer, "fit", FIT, _arguments, package)


def _arguments(trainer: Any) -> dict[str, str]:
    return read(trainer, ARGUMENTS)


def _watch_logged(calls: CallLog, package: str, module: ModuleType) -> None:
    """Record the names at the end of each epoch, before their values are averaged.

    A value is averaged on the ranks that have logged it, so that each of them waits for the others.
    """
    connector = getattr(module, "_LoggerConnector", None)
    for method in ("update_train_epoch_metrics", "update_eval_epoch_metrics"):
        record_arguments(calls, connector, method, LOG, _logged, package)


def _logged(connector: Any) -> dict[str, str]:
    results = getattr(getattr(connector, "trainer", None), "_results", None)
    items = results.valid_items() if results is not None else ()
    metas = [metric.meta for _, metric in items]
    return {LOGGED: ", ".join(sorted({one.name for one in metas if one.sync.should})) or "none"}


def _note_own_results(calls: CallLog, package: str, module: ModuleType) -> None:
    """Note the results of an evaluation that Lightning computes without asking the other ranks.

    A result whose steps exchanged data before they logged it may be that of all ranks.
    """
    from ..probes import evaluations  # imports torch, as Lightning has done

    metric = getattr(module, "_ResultMetric", None)
    collection = getattr(module, "_ResultCollection", None)
    update, computed = getattr(metric, "update", None), getattr(collection, "_get_cache", None)
    if metric is None or collection is None or update is None or computed is None:
        return  # another version
    #: By ``id``: a metric's hash changes with its state.
    given: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @functools.wraps(update)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        if evaluations.RECORD.exchanges != evaluations.RECORD.exchanges_at_input:
            given[id(self)] = self
        update(self, *args, **kwargs)

    @functools.wraps(computed)
    def get_cache(result: Any, on_step: bool) -> Any:
        __tracebackhide__ = True
        value = computed(result, on_step)
        own = result.is_tensor and not result.meta.sync.should and id(result) not in given
        if own and not on_step and result.meta.fx in _EVALUATION_STEPS:
            evaluations.RECORD.computes(value)
        return value

    metric.update = noting
    collection._get_cache = staticmethod(get_cache)


def _watch_log(calls: CallLog, package: str, module: ModuleType) -> None:
    """Record the line that first logs each name whose values are averaged.

    Also recorded is each change of ``sync_dist`` in calls for one name: a value of a step is
    averaged in the call, by the ranks that ask for it.
    """
    owner = getattr(module, "LightningModule", None)
    original = getattr(owner, "log", None)
    if owner is None or original is None:
        return  # another version
    seen: set[tuple[str, CodeType, int]] = set()
    #: By the name and the code that logs it, which is another one in the next cell.
    synced: dict[tuple[str, CodeType], bool] = {}
    changes = itertools.count(1)

    @functools.wraps(original)
    def log(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        asked, caller = bool(kwargs.get("sync_dist")), sys._getframe(1)
        key, at = (name, caller.f_code), (name, caller.f_code, caller.f_lineno)
        if synced.get(key) is not asked and (key in synced or len(synced) < _MOST_NAMES):
            synced[key] = asked
            number = next(changes)
            if number <= _MOST_CHANGES:
                given = json.dumps({f"{SYNCED} {name}": str(asked)})
                record = CallRecord(op=SYNC, kind="setup", number=number, detail=given)
                calls.record(record, lambda: None, package)
        if asked and at not in seen and len(seen) < _MOST_NAMES:
            seen.add(at)
            record = CallRecord(op=LOGGED_AT, kind="setup", number=len(seen), detail=name)
            calls.record(record, lambda: None, package)
        return original(self, name, *args, **kwargs)

    owner.log = log


_WATCHED = (
    (_TRAINER, _watch_fit),
    (_LOGGER, _watch_logged),
    (_MODULE, _watch_log),
    (_RESULTS, _note_own_results),
)
