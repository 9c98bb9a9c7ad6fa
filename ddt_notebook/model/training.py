"""How a rank trained: its optimizers' steps, DDP's synchronisation, and its losses.

Fingerprints are taken of a few watched tensors, at the first steps and then less and less often.
They show at which step ranks diverge. The fingerprints of `RankParity` at the end show the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .position import Position

#: Stands for a missing gradient.
NO_GRADIENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Fingerprints of an optimizer's watched parameters before one of its steps, or at the end.

    Attributes
    ----------
    step
        How many steps the optimizer had taken in this run.
    values
        Fingerprints of the parameters, in the order of `OptimizerTraining.watched`.
    gradients
        Fingerprints of their gradients, `NO_GRADIENT` if missing; empty at the end of the run.
    with_gradient
        How many of all the optimizer's parameters had a gradient.
    local, unclipped, clipped, used
        Projections of the first watched gradients: after the last backward pass, before and after
        they were clipped, and as the step used them. A projection of a sum is the sum of the
        projections. Empty if not known; for models in DDP only if gradients were accumulated.
    exchanged
        The same before the last of several backward passes, if the gradients had been changed since
        the pass before; for models outside DDP only.
    rates
        Learning rates of its first parameter groups.
    backwards
        How many backward passes had ended in this run; None if not known.
    """

    step: int
    values: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()
    with_gradient: int = 0
    rates: tuple[float, ...] = ()
    local: tuple[float, ...] = ()
    unclipped: tuple[float, ...] = ()
    clipped: tuple[float, ...] = ()
    used: tuple[float, ...] = ()
    exchanged: tuple[float, ...] = ()
    backwards: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A learning-rate scheduler.

    Attributes
    ----------
    kind
        Its class, such as ``"CosineAnnealingLR"``.
    steps
        The number of its steps in this run.
    end
        After how many steps its schedule ends; None if not known.
    where
        The line of its first step.
    """

    kind: str
    steps: int = 0
    end: int | None = None
    where: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTraining:
    """What one optimizer did in this run.

    Attributes
    ----------
    name
        The variable, such as ``"optimizer"``; otherwise its class and line, such as
        ``"SGD at cell[2] line 9"``.
    kind
        Its class, such as ``"SGD"``.
    steps
        The number of its steps.
    where, made
        The line of its first step, and the line that made it.
    made_rates
        The learning rates with which that line made it; empty if not known.
    settings
        Its learning rate and other settings at the first step, as text, by name: ``"lr[0]"``.
    parameters, trainable
        How many tensors it holds, and how many of them require gradients.
    model, wrapper
        The model that holds its parameters, ``""`` if not known, and what distributes that model
        over the ranks: ``"DDP"``, ``"FSDP2"``, ``"FSDP"``, ``"DTensor"``, ``"DeepSpeed"``, ``""``.
    members
        Ranks among which DDP averages gradients.
    shapes
        How many of its parameters have each shape; shapes are given as ``"10×20"``.
    watched, elements
        Names of the parameters whose fingerprints are taken, and their numbers of elements.
    states
        States at the sampled steps, ascending; the last one is at the end of the run.
    synchronised
        Number of steps for which DDP averaged gradients, because the last forward pass before them
        went through DDP with synchronisation on. For models in DDP only.
    group_operations
        How many operations DDP's group was given, by anyone, between the first step and the last
        sampled one; None if not known. Averaging gradients takes at least one in each step.
    passes
        Number of steps, by the number of backward passes since the step before.
    changed_before
        Steps (numbers as in `TrainingState.step`) before which something other than the optimizer
        changed the parameters; 0 stands for a change after DDP was built or since the last run.
    changed_at
        For each of these changes, the line that made it; None if that was not observed.
    added_at
        The line of a backward pass that followed an exchange of the gradients of the same step.
    twin
        A model whose parameters have the same shapes and had gradients, while the parameters of
        this optimizer had none.
    schedules
        The learning-rate schedulers that stepped for it.
    scaler_skipped, scaler_where
        How many of its steps a gradient scaler left out because of infinite gradients, and the
        line of the first one.
    clipped_scaled
        Before how many of its steps gradients were clipped that a gradient scaler had scaled, and
        not unscaled yet.
    stale, left_out
        How many of its parameters had no gradient and are not part of the model that holds the
        others; and how many parameters of that model had one but are not in this optimizer.
    gone
        Whether its parameters belong to no variable at the end of the run, so that `RankParity`
        does not compare them; another model may have the same name.
    """

    name: str
    kind: str = ""
    steps: int = 0
    where: Position | None = None
    made: Position | None = None
    made_rates: tuple[float, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    parameters: int = 0
    trainable: int = 0
    model: str = ""
    wrapper: str = ""
    members: tuple[int, ...] = ()
    shapes: dict[str, int] = field(default_factory=dict)
    watched: tuple[str, ...] = ()
    elements: tuple[int, ...] = ()
    states: tuple[TrainingState, ...] = ()
    synchronised: int = 0
    group_operations: int | None = None
    passes: dict[int, int] = field(default_factory=dict)
    changed_before: tuple[int, ...] = ()
    changed_at: tuple[Position | None, ...] = ()
    added_at: Position | None = None
    twin: str = ""
    schedules: tuple[Schedule, ...] = ()
    scaler_skipped: int = 0
    scaler_where: Position | None = None
    clipped_scaled: int = 0
    stale: int = 0
    left_out: tuple[str, ...] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """A tensor that should be trained but that a module keeps as a plain attribute.

    Attributes
    ----------
    name
        Name within the model, such as ``"head.scale"``.
    shape
        Its shape, such as ``"10×20"``.
    trained
        Whether it had a gradient at the end of the run.
    """

    name: str
    shape: str = ""
    trained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutInputs:
    """The part of a tensor from which the inputs of a model were cut, one after the other.

    Attributes
    ----------
    storage_bytes
        Size of the memory of the whole tensor.
    begin_bytes, end_bytes
        Where in it the first input begins and the last one ends.
    """

    storage_bytes: int
    begin_bytes: int
    end_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraining:
    """The forward passes and settings of one DDP model in this run.

    Attributes
    ----------
    name
        The variable, such as ``"model"``; otherwise its class.
    where
        The line of its first forward pass with gradients.
    made, made_by
        The line that put it into DDP, None if not known; and the file of the installed library
        that this line called to do it, empty if it did so itself.
    unsynchronised_where
        The line of its first forward pass inside ``no_sync()``.
    no_sync_where
        The line that called ``no_sync()`` for that pass.
    members
        Ranks among which it averages gradients.
    forwards
        Number of forward passes with gradients and synchronisation.
    unsynchronised
        Number of forward passes with gradients inside ``no_sync()``.
    clipped_alone, clipped_where
        How often gradients were clipped while the last pass was inside ``no_sync()``, and where.
    first_inputs
        Fingerprints of the inputs of its first forward passes with gradients; empty if an input
        was on a device or was not a tensor.
    taken_from
        The variable with the data of which one of these inputs is a part; empty if none was found,
        or if a loader brought it.
    cut_inputs
        The part of a tensor from which all of its inputs were cut; None if there was another input.
    values
        Fingerprints of its watched parameters at the end of the run, or when it was deleted.
    parameters
        Names of its parameters, in DDP's order; only the first ones of a large model.
    devices
        The devices of its parameters, such as ``"cuda:0"``.
    moves_to
        The devices of ``device_ids``, to the first of which DDP moves the inputs.
    names_digest, shapes_digest
        Digests of the names and of the shapes of all parameters, in that order.
    find_unused_parameters, static_graph, broadcast_buffers
        As passed to DDP.
    bucket_cap_mb
        As passed to DDP.
    buckets
        The number of gradient buckets; None if not known.
    communication_hook
        Whether gradients are combined in another way than by DDP's own averaging.
    ignores_parameters
        Whether it was configured to ignore some parameters.
    searched, unused
        The number of sampled steps at which DDP searched for unused parameters, and of those at
        which it found some.
    not_averaged
        Names of parameters that had a gradient at a sampled step and did not require one when the
        model was put into DDP, or were not part of it: DDP does not average these.
    dropout, batch_norm
        Whether it has such layers in training mode. Synchronised batch norm does not count.
    statistics
        Fingerprints of its running statistics at the end of the run, or when it was deleted, by
        name; only if it has such layers and DDP does not broadcast buffers.
    random_state
        Fingerprint of torch's random state at the first forward pass.
    unregistered
        Trainable tensors that are not registered as its parameters.
    """

    name: str
    where: Position | None = None
    made: Position | None = None
    made_by: str = ""
    unsynchronised_where: Position | None = None
    no_sync_where: Position | None = None
    members: tuple[int, ...] = ()
    forwards: int = 0
    unsynchronised: int = 0
    clipped_alone: int = 0
    clipped_where: Position | None = None
    first_inputs: tuple[int, ...] = ()
    taken_from: str = ""
    cut_inputs: CutInputs | None = None
    values: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    moves_to: tuple[str, ...] = ()
    names_digest: int = 0
    shapes_digest: int = 0
    find_unused_parameters: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    buckets: int | None = None
    communication_hook: bool = False
    ignores_parameters: bool = False
    searched: int = 0
    unused: int = 0
    not_averaged: tuple[str, ...] = ()
    dropout: bool = False
    batch_norm: bool = False
    statistics: dict[str, int] = field(default_factory=dict)
    random_state: int = 0
    unregistered: tuple[Unregistered, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """The first loss that was not finite.

    Attributes
    ----------
    backward
        Number of the backward pass in the run, counted from 1.
    value
        ``"nan"``, ``"inf"`` or ``"-inf"``.
    where
        The line that called ``backward``.
    inputs, parameters
        Whether the model's inputs and parameters were all finite at that time; None if not known.
    lasting
        Whether the last loss of the run was not finite either.
    """

    backward: int
    value: str
    where: Position | None = None
    inputs: bool | None = None
    parameters: bool | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenNotFinite:
    """The first value that is not finite and that a call of the user's own gave to other ranks.

    Attributes
    ----------
    op
        The operation.
    where
        The line that made the call.
    backwards
        Number of backward passes in the run before it.
    call
        Number of the record of the call on its rank.
    """

    op: str
    where: Position
    backwards: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenMemory:
    """Parameters that an optimizer stepped, and to which nobody had written.

    Attributes
    ----------
    where
        The line that gave them memory without values, as `Module.to_empty` does.
    module
        The class of the module to which they belong.
    names
        Their names in it, at most 8.
    unwritten, parameters
        How many of them nobody had written to, and how many had a gradient.
    finite, zero
        Whether their memory held finite numbers only, and whether only zeros were found in it.
    """

    where: Position | None = None
    module: str = ""
    names: tuple[str, ...] = ()
    unwritten: int = 0
    parameters: int = 0
    finite: bool = True
    zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGraph:
    """How a loss was computed, as its graph shows.

    Attributes
    ----------
    reduction
        ``"mean"``, ``"sum"``, or empty if not known.
    factor
        By what constant the reduced loss was multiplied; None if it was not a constant.
    """

    reduction: str = ""
    factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTensor:
    """A tensor that a rank declared equal to those of other ranks, which was not checked.

    Attributes
    ----------
    members
        The ranks on which it should be equal.
    shape
        Its shape, such as ``"10×20"``.
    content
        Fingerprint of its content.
    where
        The user's line that passed it on.
    fed_at
        The user's line that called the model in which that line is; None for no other line.
    """

    members: tuple[int, ...]
    shape: str = ""
    content: int = 0
    where: Position | None = None
    fed_at: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedForward:
    """A forward pass in training that added up activations over several ranks.

    Attributes
    ----------
    members
        The ranks over which it added.
    shape
        Shape of the model's input, such as ``"10×20"``.
    content
        Fingerprint of that input.
    part
        Whether the input is a part of a larger tensor.
    where
        The user's line that called the model.
    summed_at
        The user's line that added.
    """

    members: tuple[int, ...]
    shape: str = ""
    content: int = 0
    part: bool = False
    where: Position | None = None
    summed_at: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedModule:
    """A module outside DDP that was called between the first two steps.

    Attributes
    ----------
    name
        The variable, such as ``"self.teacher"``; otherwise its class: ``"the Linear"``.
    trained
        Whether an optimizer holds parameters of it. A teacher or a target network has none.
    where
        The line that called it first.
    watched
        Names of the parameters whose fingerprints are taken.
    shapes
        How many of its parameters have each shape; shapes are given as ``"10×20"``.
    first, last
        Fingerprints of its watched parameters when it was called first, and at the end of the run
        or when it was deleted.
    """

    name: str
    trained: bool = False
    where: Position | None = None
    watched: tuple[str, ...] = ()
    shapes: dict[str, int] = field(default_factory=dict)
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSample:
    """Fingerprints of what nothing keeps equal, at one moment.

    Attributes
    ----------
    moment
        ``"begin"`` before the first forward pass, ``"step"`` before a step of the first optimizer,
        ``"evaluation"`` after a pass without gradients, ``"counted"`` after one that used running
        statistics which the module counted itself, ``"end"`` at the end of the run.
    number, step
        The number of that step, or of that pass at its line, and how many steps of optimizers had
        ended.
    where
        The line of the pass.
    values
        Fingerprints of the watched parameters, then of the buffers, then of the statistics.
    """

    moment: str
    number: int = 0
    step: int = 0
    where: Position | None = None
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """Parameters and buffers of a module that DDP does not keep equal on all ranks.

    Attributes
    ----------
    name
        The variable that held it when training began, such as ``"self.ema.module"``.
    wrapped
        Whether it is the model in DDP, of which only the buffers are watched.
    parameters, buffers
        Names of the watched ones. Statistics of batch norm and single numbers are left out.
    shapes
        Shapes of the buffers, such as ``"10×20"``.
    shapes_digest
        Digest of the shapes of all its parameters, as in `ModelTraining`.
    trained
        Whether an optimizer holds a parameter of it.
    graded, evaluated
        Number of passes through it whose result needs gradients, and of those without gradients.
    statistics
        Names of watched running statistics of a module beside the model in DDP.
    counting
        How many of the passes without gradients updated such statistics.
    counted_at
        The line of the first of these.
    saved
        The line that saved a part of it first.
    samples
        Fingerprints, in the order in which they were taken.
    """

    name: str
    wrapped: bool = False
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    shapes_digest: int = 0
    trained: bool = False
    graded: int = 0
    evaluated: int = 0
    statistics: tuple[str, ...] = ()
    counting: int = 0
    counted_at: Position | None = None
    saved: Position | None = None
    samples: tuple[KeptSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A loss that compares a rank's samples with more samples than it has, or with each other.

    Attributes
    ----------
    number, where
        The backward pass in the run, counted from 1, and the line that called it.
    samples, choices
        How many samples are compared, and with how many.
    first
        The label of the first sample, if the labels count up from it; None otherwise.
    among
        Whether the samples are compared with each other: each of them is the label of one.
    own, others
        Fingerprints of the features that are compared, 0 if not known, and of those that they are
        compared with.
    """

    number: int
    where: Position | None = None
    samples: int = 0
    choices: int = 0
    first: int | None = None
    own: int = 0
    others: int = 0
    among: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A loss that is a mean over elements which the program counted or chose.

    Attributes
    ----------
    number, where
        The backward pass in the run, counted from 1, and the line that called it.
    counted
        By how many elements the sum was divided.
    """

    number: int
    where: Position | None = None
    counted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Random numbers that the program drew from torch's random state for one training step.

    Attributes
    ----------
    number
        The number of backward passes of this run that had begun.
    where
        The line that drew them.
    function
        The function of torch, such as ``"randn_like"``.
    shape
        Their shape, such as ``"10×20"``.
    content
        Fingerprint of the numbers.
    use
        ``"sample"`` if a loader drew them while it made a batch, ``"input"`` if DDP was given them,
        ``"batch"`` if they are fractions, as many as DDP's input has rows; empty otherwise.
    """

    number: int
    where: Position | None = None
    function: str = ""
    shape: str = ""
    content: int = 0
    use: Literal["", "sample", "input", "batch"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainState:
    """Numbers of an object of the user, outside of parameters and buffers, that have changed.

    Attributes
    ----------
    name
        The variable that held the object when training began, such as ``"self.norm"``.
    kind
        The object's class.
    values
        The attributes: numbers, tensors and arrays.
    shapes
        Their shapes, such as ``"10×20"``.
    samples
        Their fingerprints, in the order in which they were taken, as in `KeptState`.
    saved
        The line that saved one of the tensors first.
    """

    name: str
    kind: str = ""
    saved: Position | None = None
    values: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    samples: tuple[KeptSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTraining:
    """How one rank trained in this run.

    Attributes
    ----------
    rank
        Global rank.
    backwards
        Number of backward passes.
    where
        The line that called ``backward`` first.
    seed, seeded_at
        The seed of torch's random numbers at that first pass, and the line that set it; None if no
        line of the user's code did.
    loss
        How the loss of that first pass was computed.
    clips_at
        The line that clipped gradients first.
    graphs_kept
        How many of the graphs of the first 32 backward passes were alive at once; 0 if there were
        fewer passes.
    optimizers
        The optimizers, in the order of their first steps.
    models
        The models in DDP that ran a forward pass, in the order of the first one.
    by_hand
        The tensors that the program updated itself, if no optimizer had them and no model in DDP
        was trained. Its steps are the backward passes; its states those before the first pass and
        at the end.
    not_finite
        The first loss that was not finite, None if all were finite.
    given
        The first value that was not finite and that the program gave to other ranks.
    unwritten
        Parameters without initial values that were trained.
    replicated
        The first tensors that were declared equal on several ranks, as inputs of layers of tensor
        parallelism are.
    summed
        The first forward passes that added up activations over ranks.
    used
        The modules outside DDP that were called between the first two steps.
    called_past
        The line that, up to the second step, first called the module in DDP itself with gradients.
    kept
        What DDP does not keep equal: buffers, and modules beside the model in DDP.
    plain
        What the program's own objects hold and change while it trains.
    contrasts
        Sampled losses that compare a rank's samples with those of several ranks, or with each
        other.
    counted
        The first losses that are means over elements which the program counted or chose.
    drawn
        Random numbers that were drawn for the first steps after the first one.
    losses
        The losses of the first backward passes, if they are numbers on the CPU.
    threads, processors
        Number of threads that an operation of torch uses, and of processors that the rank may use.
    """

    rank: int
    backwards: int = 0
    where: Position | None = None
    seed: int | None = None
    seeded_at: Position | None = None
    loss: LossGraph | None = None
    clips_at: Position | None = None
    graphs_kept: int = 0
    optimizers: tuple[OptimizerTraining, ...] = ()
    models: tuple[ModelTraining, ...] = ()
    by_hand: OptimizerTraining | None = None
    not_finite: NotFinite | None = None
    given: GivenNotFinite | None = None
    unwritten: tuple[UnwrittenMemory, ...] = ()
    replicated: tuple[ReplicatedTensor, ...] = ()
    summed: tuple[SummedForward, ...] = ()
    used: tuple[UsedModule, ...] = ()
    called_past: Position | None = None
    kept: tuple[KeptState, ...] = ()
    plain: tuple[PlainState, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    counted: tuple[CountedLoss, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    losses: tuple[float, ...] = ()
    threads: int = 0
    processors: int = 0
