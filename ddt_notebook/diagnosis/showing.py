"""Which views of a run show a fault."""

from __future__ import annotations

import functools
from collections import Counter

from ddt_notebook import faults

#: Views, the one that shows most first, and the fault cards that they show. Faults of which no view
#: of a run shows anything stand under the empty tuple: what was seen is told with their finding,
#: and a view in which all is well would mislead.
SHOWN: dict[tuple[str, ...], str] = {
    (): """
        build-failed requirement-not-met toolchain-missing wheel-not-supported
        circular-import module-not-found module-shadowed package-version shared-library
        backend-not-available backend-unknown environment-invalid environment-not-set
        group-initialized-twice group-not-initialized init-method-incomplete network-interface
        rank-outside-world setup-options spawn-in-a-cell device-without-backend
        unpicklable-object device-ordinal no-cuda debug-level-detail path-missing
        checkpoint-unreadable checkpoint-of-wrapper nothing-loaded weights-only
        averaged-twice buffer-changed-before-wait dtype-differs handle-not-waited
        local-loss-as-global message-dtype-differs message-size-differs metric-not-reduced
        reduce-op-differs reduce-read-on-wrong-rank result-read-before-wait sum-shown-as-mean
        swapped-collectives
        learning-rate-not-scaled loss-not-finite nan-from-one-rank same-dropout-masks
        find-unused-for-nothing oversubscribed-threads workers-repeat-stream
    """,
    ("stacks",): """
        master-unreachable port-in-use rank-missing-at-setup rank-number-repeated
        rendezvous-differs rendezvous-file-left-over world-size-differs
        killed-from-outside native-abort process-exit segmentation-fault
        attribute-missing not-implemented dataloader-worker dataset-item-fails
        folder-made-by-every-rank checkpoint-written-by-every-rank checkpoint-read-too-early
        iterator-exhausted rank-silent rank-suspended exception-swallowed graph-freed
        caller-not-in-group inplace-change graph-changed parameter-ready-twice unused-parameters
        tensor-shapes
        collective-arguments dtype-not-supported output-list-length
        device-ids-on-cpu models-differ wrapped-by-ddp
        optimizer-state state-dict state-dict-prefix state-dict-shape
        sampler-with-iterable sampler-with-shuffle uneven-chunks
    """,
    ("stacks", "collectives"): """
        both-sides-wait collective-under-local-condition collective-under-rank-condition
        different-collectives different-groups early-exit-on-rank-condition
        groups-in-opposite-order loop-ends-by-clock message-tags-differ message-without-partner
        rank-skips-collective root-differs shape-differs wait-cycle new-group-on-some-ranks
        stale-group
    """,
    ("collectives",): "small-buckets small-collectives",
    ("parity",): """
        batch-norm-statistics-apart gradients-changed-after-averaging gradients-not-reduced
        model-reset-on-one-rank no-sync-left-on ranks-diverged-learning-rate
        replicas-start-apart steps-skipped-on-some-ranks submodules-in-another-order
        unused-parameter-in-last-step
    """,
    ("placement",): """
        checkpoint-device checkpoint-on-one-gpu tensor-attribute-not-registered
        tensors-on-two-devices
    """,
    ("placement", "memory"): "all-ranks-on-one-gpu",
    ("placement", "parity"): "model-not-wrapped optimizer-on-another-copy",
    ("parity", "placement"): "module-called-past-ddp",
    ("memory",): "loss-keeps-graph out-of-memory",
    ("partition",): """
        iterable-not-sharded no-batches-on-a-rank no-distributed-sampler sampler-for-wrong-rank
        set-epoch-forgotten shard-gaps shard-overlap
    """,
    ("partition", "stacks"): "uneven-iterations",
    ("timeline",): "dataloader-starves straggler-compute",
    ("timeline", "partition"): "straggler-data uneven-batch-sizes",
    ("timeline", "stacks"): "rank-too-slow",
}


@functools.cache
def _by_cause() -> dict[str, tuple[str, ...]]:
    return {cause: views for views, causes in SHOWN.items() for cause in causes.split()}


def of_cause(cause: str) -> tuple[str, ...]:
    """The views that show the fault of a card; empty if none does, or there is no such card."""
    return _by_cause().get(cause, ())


@functools.cache
def of_symptom(code: str) -> tuple[str, ...]:
    """The views that show at least a third of the faults with a symptom, most faults first."""
    told = [of_cause(card.id) for card in faults.cards() if code in card.symptoms]
    seen = Counter(view for views in told for view in views)
    return tuple(view for view, number in seen.most_common() if 3 * number >= len(told))
