"""How a rank trained: its optimizers' steps, what DDP synchronised, its losses.

Fingerprints are taken of a few watched tensors, at the first steps and then ever more rarely: they
say at which step ranks part. What they miss, the fingerprints of `RankParity` tell at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .position import Position

#: Stands for a gradient that is not there.
NO_GRADIENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Fingerprints of an optimizer's watched parameters before one of its steps, or at the end.

    Attributes
    ----------
    step
        How many steps it had taken in this run.
    values
        Of the parameters, in the order of `OptimizerTraining.watched`.
    gradients
        Of their gradients, `NO_GRADIENT` where there is none; empty at the end of the run.
    with_gradient
        How many of all its parameters had a gradient.
    rates
        Learning rates of its first parameter groups.
    """

    step: int
    values: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()
    with_gradient: int = 0
    rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTraining:
    """What one optimizer did in this run.

    Attributes
    ----------
    name
        The variable, ``"optimizer"``; else its class and line: ``"SGD at cell[2] line 9"``.
    kind
        Its class: ``"SGD"``.
    steps
        How often it stepped.
    where, made
        The line of its first step, and the line that made it.
    settings
        Its learning rate and other settings at the first step, as text, by name: ``"lr[0]"``.
    parameters, trainable
        How many tensors it holds, and how many of them require gradients.
    model, wrapper
        The model that holds its parameters, ``""`` if it is not known, and what spreads that model
        over the ranks: ``"DDP"``, ``"FSDP2"``, ``"FSDP"``, ``"DTensor"``, ``"DeepSpeed"`` or none.
    members
        Ranks between which DDP averages.
    shapes
        Of all its parameters, as ``"10×20"``: how many have each.
    watched
        Names of the parameters of which fingerprints are taken.
    states
        At the steps that were sampled, ascending; the last one is at the end of the run.
    synchronised
        Steps for which DDP averaged gradients: the last forward pass before them went through DDP,
        with synchronisation on. Of a model in DDP only.
    changed_before
        Steps (numbers as in `TrainingState.step`) before which something else than the optimizer
        wrote into the parameters; 0 stands for a change after DDP was built or since the last run.
    twin
        A model whose parameters have the same shapes and had gradients, while those of this
        optimizer had none.
    stale, left_out
        How many of its parameters had no gradient and are no part of the model that holds the
        others; and parameters of that model that had one and are not in this optimizer.
    """

    name: str
    kind: str = ""
    steps: int = 0
    where: Position | None = None
    made: Position | None = None
    settings: dict[str, str] = field(default_factory=dict)
    parameters: int = 0
    trainable: int = 0
    model: str = ""
    wrapper: str = ""
    members: tuple[int, ...] = ()
    shapes: dict[str, int] = field(default_factory=dict)
    watched: tuple[str, ...] = ()
    states: tuple[TrainingState, ...] = ()
    synchronised: int = 0
    changed_before: tuple[int, ...] = ()
    twin: str = ""
    stale: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """A tensor that a module keeps as a plain attribute, although it is to be trained.

    Attributes
    ----------
    name
        Within the model: ``"head.scale"``.
    shape
        ``"10×20"``.
    trained
        Whether it had a gradient at the end of the run.
    """

    name: str
    shape: str = ""
    trained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraining:
    """What went through one DDP model in this run.

    Attributes
    ----------
    name
        The variable, ``"model"``; else its class.
    where
        The line of its first forward pass with gradients.
    unsynchronised_where
        The line of its first forward pass inside ``no_sync()``.
    members
        Ranks between which it averages gradients.
    forwards
        Forward passes with gradients and synchronisation.
    unsynchronised
        Forward passes with gradients inside ``no_sync()``.
    first_inputs
        Fingerprints of what its first forward passes with gradients were given; empty where it
        was on a device or no tensor.
    parameters
        Names of its parameters, in the order in which DDP holds them; of a large model the first.
    names_digest, shapes_digest
        Of the names and of the shapes of all of them, in that order.
    find_unused_parameters, static_graph, broadcast_buffers
        As DDP was told.
    bucket_cap_mb
        As DDP was told.
    buckets
        How many buckets the gradients are sent in; None if it is not known.
    communication_hook
        Whether something else than DDP's own averaging is done with gradients.
    ignores_parameters
        Whether it was told to leave some parameters alone.
    searched, unused
        Sampled steps at which DDP looked for unused parameters, and at how many it found some.
    dropout, batch_norm
        Whether it has such layers that were in training mode. Synchronised batch norm is none.
    random_state
        Fingerprint of torch's random state at the first forward pass.
    unregistered
        Trainable tensors that it does not know as its parameters.
    """

    name: str
    where: Position | None = None
    unsynchronised_where: Position | None = None
    members: tuple[int, ...] = ()
    forwards: int = 0
    unsynchronised: int = 0
    first_inputs: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
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
    dropout: bool = False
    batch_norm: bool = False
    random_state: int = 0
    unregistered: tuple[Unregistered, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """The first loss that was no finite number.

    Attributes
    ----------
    backward
        The how-manieth backward pass of the run it was, counted from 1.
    value
        ``"nan"``, ``"inf"`` or ``"-inf"``.
    where
        The line that called ``backward``.
    inputs, parameters
        Whether the model's inputs and its parameters were all finite then; None if not known.
    lasting
        Whether the last loss of the run was no finite number either.
    """

    backward: int
    value: str
    where: Position | None = None
    inputs: bool | None = None
    parameters: bool | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTraining:
    """How one rank trained in this run.

    Attributes
    ----------
    rank
        Global rank.
    backwards
        Backward passes.
    optimizers
        In the order of their first steps.
    models
        Models in DDP through which something passed, in that order.
    not_finite
        The first loss that was no finite number, None if all were.
    threads, processors
        Threads that an operation of torch uses, and processors that the rank may use.
    """

    rank: int
    backwards: int = 0
    optimizers: tuple[OptimizerTraining, ...] = ()
    models: tuple[ModelTraining, ...] = ()
    not_finite: NotFinite | None = None
    threads: int = 0
    processors: int = 0
