"""One call of ``torch.distributed``, as one rank made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .frameworks import known_operation
from .operations import as_recorded
from .position import Position
from .rendezvous import Rendezvous

Shape = tuple[int, ...]
CallKind = Literal["collective", "p2p", "setup"]
CallStatus = Literal["pending", "issued", "done", "failed"]

#: What the ranks of one collective must agree on, as pairs (field name, value).
Fingerprint = tuple[tuple[str, object], ...]


def call_label(
    op: str,
    sequence: int | None = None,
    shapes: tuple[Shape, ...] = (),
    dtypes: tuple[str, ...] = (),
) -> str:
    """``all_reduce #17 (10 × float32)``."""
    number = f" #{sequence}" if sequence is not None else ""
    what = tensor_label(shapes, dtypes)
    return f"{op}{number} ({what})" if what else f"{op}{number}"


def tensor_label(shapes: tuple[Shape, ...], dtypes: tuple[str, ...]) -> str:
    """``10 × float32`` or ``2×3 × float32``; empty for calls without tensors."""
    if not shapes or not dtypes:
        return ""
    shape = shape_label(shapes[0])
    first = f"{shape} × {dtypes[0]}" if shapes[0] else f"{shape} {dtypes[0]}"
    return first if len(shapes) == 1 else f"{first} and {len(shapes) - 1} more"


def shape_label(shape: Shape) -> str:
    """``2×3``, or ``scalar``."""
    return "×".join(map(str, shape)) or "scalar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective, a point-to-point call or a set-up call.

    Attributes
    ----------
    index
        Position in this rank's history of calls, counted from 0 at the start of the session.
    op
        Name as in ``torch.distributed``: ``"all_reduce"``, ``"send"``, ``"new_group"``, or in
        Horovod: ``"allreduce"``. For the execution of a graph of TensorFlow, the name of its
        function: ``"train_step()"``.
    kind
        ``"collective"`` (matched across all members by ``group`` and ``sequence``), ``"p2p"``
        (matched between two ranks by direction, tag and ``sequence``) or ``"setup"``
        (``init_process_group``, ``new_group``, ``destroy_process_group``).
    group
        Name of the process group; the default group is ``"0"``. Ranks of Horovod meet by the name
        of the tensor, in any order, so each name is a group of its own: ``"allreduce.weight"``.
    members
        Global ranks of the group, ascending. Empty if the group is not known.
    sequence
        The number of the call on this rank, counted from 1. Collectives are counted for each
        group since it was formed, p2p calls for each group, direction, peer and tag, and set-up
        calls for each name. None if the caller is not a member of the group.
    status
        ``"pending"``: entered but not left. ``"issued"``: asynchronous; it has returned but may
        not be complete. ``"done"``: returned, or waited for. ``"failed"``: raised.
    reduce_op
        ``"SUM"``, ``"MAX"`` …, None if the operation has none.
    detail
        What a framework notes with a set-up call: a name, a path, or its settings as JSON.
    root
        Global rank of source or destination of a rooted collective.
    peer
        Global rank of the other side of a p2p call; None means "from anyone".
    tag
        Tag of a p2p call.
    shapes, dtypes
        Shapes and types of the tensors that this rank passed in, in order, such as ``"float32"``.
    output_shapes
        Shapes of the tensors that receive the result, if they are separate from the input.
    where
        The user's line that made the call.
    callers
        The user's lines from which the function of `where` was called, innermost first. Empty if
        there are none, or if they were not recorded.
    source
        ``"call log"``: our wrapper recorded it before the call was made. ``"flight recorder"``: DDP
        or another library issued it, and only PyTorch's Flight Recorder recorded it (reduce-op
        and root are not known then).
    caller
        Part of torch that issued it, if the user's own line did not:
        ``"DistributedDataParallel"``.
    called_from
        File of an installed library between the user's line and the call, from the library's name
        on: ``"accelerate/utils/operations.py"``. None if there is none, or `caller` is known.
    asynchronous
        True if the call returned a handle.
    gives_up_after_s
        After how many seconds the call raises by itself, if that is short and the program handles
        the error where it makes the call; None otherwise.
    entered_s, left_s
        Times on the machine's monotonic clock, in seconds (the same clock for all local ranks).
    error
        ``"RuntimeError: ..."`` (first line) if it failed.
    rendezvous
        For ``init_process_group``: how the rank tried to join.
    new_members
        For ``new_group``: the global ranks of the group that it forms, ascending. Empty if they
        were not recorded.
    branches_before
        How many branch events of the run precede the call; None if they were not observed.
    branch_hash
        Running hash of these events: equal ways give equal hashes.
    """

    index: int
    op: str
    kind: CallKind = "collective"
    group: str = "0"
    members: tuple[int, ...] = ()
    sequence: int | None = None
    status: CallStatus = "done"
    reduce_op: str | None = None
    detail: str | None = None
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    where: Position | None = None
    callers: tuple[Position, ...] = ()
    source: Literal["call log", "flight recorder"] = "call log"
    caller: str | None = None
    called_from: str | None = None
    asynchronous: bool = False
    gives_up_after_s: float | None = None
    entered_s: float | None = None
    left_s: float | None = None
    error: str | None = None
    rendezvous: Rendezvous | None = None
    new_members: tuple[int, ...] = ()
    branches_before: int | None = None
    branch_hash: int = 0

    @property
    def label(self) -> str:
        """``all_reduce #17 (10 × float32)``, as findings print it."""
        return call_label(self.op, self.sequence, self.shapes, self.dtypes)

    @property
    def tensor_label(self) -> str:
        """``10 × float32`` or ``2×3 × float32``; empty for calls without tensors."""
        return tensor_label(self.shapes, self.dtypes)

    def fingerprint(self) -> Fingerprint:
        """What must be equal on every member for the collective to be correct.

        Dimensions of size 1 are left out of the shapes: they do not change which elements meet.
        Fields that are not known for this call are absent (a collective that only the Flight
        Recorder recorded has no reduce-op and no root). Compare only fields that both sides have.
        """
        fields: list[tuple[str, object]] = [("op", self.op)]
        if self.reduce_op is not None:
            fields.append(("reduce_op", self.reduce_op))
        if self.root is not None:
            fields.append(("root", self.root))
        operation = known_operation(self.op)
        of_root = operation is not None and operation.root_sized and self.source != "call log"
        even = self.source == "call log" and bool(self.output_shapes)
        uneven = operation is not None and operation.uneven and not even
        if self.shapes and not uneven and not of_root:
            # DeepSpeed's pipeline reduces a scalar on one stage, and one element on another
            fields.append(
                ("shape", tuple(tuple(n for n in shape if n != 1) for shape in self.shapes))
            )
        if self.dtypes:
            fields.append(("dtype", self.dtypes))
        return tuple(fields)

    @property
    def is_graph(self) -> bool:
        """Whether it is the execution of a graph that contains collectives, as in TensorFlow."""
        return self.op.endswith("()")

    def _is_like(self, other: Call) -> bool:
        """Whether two graphs, whatever they are called, have the same collectives."""
        graphs = self.is_graph and other.is_graph and bool(self.shapes)
        return graphs and (self.shapes, self.dtypes) == (other.shapes, other.dtypes)

    def differences(self, other: Call) -> tuple[str, ...]:
        """Names of the fields in which two calls of one collective disagree.

        One of ``("op",)``, or any of ``"reduce_op"``, ``"root"``, ``"shape"``, ``"dtype"``. Two
        different operations are not compared further.
        """
        if self.source == other.source:
            same_op = self.op == other.op or self._is_like(other)
        else:
            same_op = as_recorded(self.op) == as_recorded(other.op)
        if not same_op:
            return ("op",)
        mine, theirs = dict(self.fingerprint()), dict(other.fingerprint())
        differ = tuple(
            name for name in mine if name != "op" and name in theirs and mine[name] != theirs[name]
        )
        if not self.is_graph and "shape" in differ and set(self.dtypes) == set(other.dtypes):
            # one rank has more tensors than the other, as in a grouped reduction
            return tuple(name for name in differ if name != "dtype")
        return differ
