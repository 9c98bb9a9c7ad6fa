"""Reports which data this rank got from its loaders, and which shards of models it holds."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from ...model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from . import shards
from .loaders import RECORD, LoaderLog, Pass, new_log
from .objects import find

#: Indices of a larger dataset are counted but not compared.
_LARGEST_INDEX = 200_000_000


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankPartition:
    """The loaders and shards of this rank."""
    found = find(namespace, names)
    variables = {id(loader): name for name, loader in found.loaders.items()}
    logs = list(RECORD.logs)
    known = {id(log.loader()) for log in logs}
    logs += [new_log(loader, None) for loader in found.loaders.values() if id(loader) not in known]
    wanted = [
        log
        for log in logs
        if id(log.loader()) in variables or (not names and not _is_left_behind(log))
    ]
    loaders = []
    same_name: Counter[str] = Counter()
    for log in wanted:  # one line may loop over several loaders, such as a trainer's
        name = _log_name(log.loader(), log, variables)
        same_name[name] += 1
        number = f" ({same_name[name]})" if same_name[name] > 1 else ""
        loaders.append(_loader(log, name + number))
    held = tuple(shards.observe(found.modules, found.optimizers))
    return RankPartition(rank=rank, run=RECORD.run, loaders=tuple(loaders), shards=held)


def _is_left_behind(log: LoaderLog) -> bool:
    """Whether the loader was used in an earlier cell only and no longer exists."""
    return log.loader() is None and (not log.passes or log.passes[-1].run < RECORD.run)


def _log_name(loader: DataLoader[Any] | None, log: LoaderLog, variables: Mapping[int, str]) -> str:
    if loader is not None and id(loader) in variables:
        return variables[id(loader)]
    return f"loader at {log.where.place if log.where is not None else ''}"


def _loader(log: LoaderLog, name: str) -> LoaderPartition:
    # a copy: the main thread of a running job may add to them meanwhile
    indices = _in_whole_data(log, np.frombuffer(log.indices.tobytes(), dtype=np.int64))
    kept = log.indexed and bool(len(indices))
    too_far = kept and not 0 <= int(indices.min()) <= int(indices.max()) < _LARGEST_INDEX
    distinct, packed = 0, ""
    if kept and not too_far:
        seen: Any = np.zeros(int(indices.max()) + 1, dtype=bool)
        seen[indices] = True
        distinct = int(seen.sum())
        packed = pack_indices(np.packbits(seen, bitorder="little").tobytes())
    chosen = log.subsets or ([log.selected] if log.selected is not None else [])
    return replace(
        log.about,
        name=name,
        subset=_digest(chosen),
        subset_size=len(chosen[0]) if chosen else None,
        indexed=log.indexed,
        epochs=tuple(_epoch(log, one) for one in log.passes),
        handed_out=packed,
        repeated=len(indices) - distinct if packed else 0,
        problem=log.problem,
        uncounted=log.uncounted + (len(indices) if too_far else 0),
    )


def _digest(subsets: list[Any]) -> int | None:
    """A digest of the samples that nested subsets select, in their order; None without one."""
    if not subsets:
        return None
    digest = 0
    for subset in subsets:
        digest = zlib.crc32(np.asarray(subset, dtype=np.int64).tobytes(), digest)
    return digest


def _in_whole_data(log: LoaderLog, indices: Any) -> Any:
    """The indices in the whole dataset of which a Subset is a part."""
    for subset in log.subsets if log.indexed else ():
        indices = np.asarray(subset, dtype=np.int64)[indices]
    return indices


def _epoch(log: LoaderLog, one: Pass) -> Epoch:
    one.measure()
    return Epoch(
        number=one.number,
        in_cell=one.in_cell,
        run=one.run,
        batches=one.batches,
        samples=one.samples,
        complete=one.complete,
        broken_off=one.broken_off,
        joined=one.joined,
        first=tuple(_in_whole_data(log, np.array(one.first, dtype=np.int64)).tolist()),
        content=tuple(one.content),
        heads=tuple(one.heads),
        sampler_epoch=one.sampler_epoch,
        epoch_set=one.epoch_set,
        resumed_from=one.resumed_from,
        made=one.made,
        trained=one.trained,
        trained_first=one.trained_first,
        where=one.where,
        waited_s=round(one.waited_s, 6),
        lasted_s=round(one.lasted_s, 6),
    )
