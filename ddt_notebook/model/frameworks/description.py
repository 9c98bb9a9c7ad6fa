"""What the whole package knows of a framework, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneBegin:
    """Where a rank that no session has prepared begins to train alone, without an error.

    Attributes
    ----------
    module, method
        The method of the framework in which it does, as ``"class.method"``.
    variable
        An environment variable with which a program prepares itself; empty if the method is not
        called then.
    """

    module: str
    method: str
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How a session prepares its ranks for a framework with collectives of its own.

    Attributes
    ----------
    modules
        What the process imports from which the ranks are forked; only the first is required.
    install
        How the framework is installed.
    environment
        Variables that it reads when it is imported, with their defaults.
    several_hosts
        Whether its ranks may be on several hosts.
    alone
        Where ranks that are not prepared would begin, if that raises nothing.
    """

    modules: tuple[str, ...]
    install: str
    environment: Mapping[str, str] = field(default_factory=dict)
    several_hosts: bool = False
    alone: AloneBegin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecording:
    """How a process of a job is recorded that may be a rank of a framework.

    Attributes
    ----------
    after
        The module of the framework after whose import it begins.
    in_ranks
        The class that records there, as `Description.in_ranks`. It is made with a function that it
        calls, with what a rank of ``torch.distributed`` would give ``init_process_group``, when the
        process becomes a rank.
    """

    after: str
    in_ranks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBegin:
    """Where a process of a recorded job becomes a rank that need not import torch.

    Attributes
    ----------
    module, method
        The method of the framework in which it does, as ``"class.method"``.
    variable
        The environment variable that jobs of the framework have.
    """

    module: str
    method: str
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A framework.

    Attributes
    ----------
    name
        Its name, which ``--framework`` takes if there is a preparation; that of its values in
        `model.agreements`.
    title
        Its name in texts.
    in_ranks
        The class that acts in the ranks, a `rank.frameworks.framework.Framework`, as
        ``"module:class"``. Only ranks import it.
    rules
        A module with rules, as those of `diagnosis.rules`: ``RULES`` and ``HINTS``, and
        ``explained``, which returns a finding with what the framework adds to it. Empty for none.
    words
        A module with ``TITLES`` of findings and ``FACTS``, as those of `diagnosis.wording`, for the
        kinds that its rules use. Empty if `diagnosis.wording` has them.
    preparation
        None if it trains through ``torch.distributed`` and ranks need no preparation.
    asks_for_gpus
        Whether it trains on GPUs only, which a session may simulate.
    in_jobs
        How its ranks in a job are recorded, if they do not form groups of ``torch.distributed``.
    job_begin
        Where its ranks begin in a recorded job, if they need not import torch.
    operations
        Its collectives that torch lacks or that have other names there.
    by_tensor
        Whether ranks meet by the name of a tensor, in any order; see `model.named_tensors`.
    meetings
        Setup calls in which ranks find each other.
    waits_in
        Functions in which a rank waits, by the end of their file's path: a stack that goes on from
        the user's code into one of them waits there.
    failures
        Types of exceptions that its operations raise where a rank waits for one, which may be
        earlier than the last.
    settings_calls
        The setup calls whose settings, in JSON, all ranks have to give alike.
    settings_of
        What they are settings of: ``"world"`` for the groups of all ranks, and ``"training"`` for
        what a library's trainer does, where only a run that fails shows that they must be equal.
    given_at
        The call that tells at which line a rank gave one of the names in a setting, by the setting;
        the name is its `Call.detail`.
    stops
        The setup calls by which a rank asks the trainer to end its loop.
    ends
        The setup calls by which a rank ends the framework on all ranks.
    callbacks
        The modules and the functions in them, or methods, with which a trainer calls callbacks.
    hooks
        The modules and the functions in them with which a trainer calls a hook of the user's
        model, whose name is their second argument; those of epochs are observed.
    first_of_host
        The methods that a trainer calls on the first rank of each host only, by the class that a
        user derives from.
    causes
        The card of each value that its ranks need equal (see `model.agreements`), by the first word
        of the value's name.
    effects
        The first words of those values that differ, too, if others do.
    alike
        The card of each value that must not be equal, by the first word of its name and the axis.
    cards
        A package whose modules are fault cards, as those of `faults`. Empty if `faults` has them.
    stand_ins
        The cards that stand for those of torch where other changes are needed, by their ids.
    """

    name: str
    title: str
    in_ranks: str
    rules: str = ""
    words: str = ""
    preparation: Preparation | None = None
    asks_for_gpus: bool = False
    in_jobs: JobRecording | None = None
    job_begin: JobBegin | None = None
    operations: Mapping[str, Operation] = field(default_factory=dict)
    by_tensor: bool = False
    meetings: frozenset[str] = frozenset()
    waits_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    failures: frozenset[str] = frozenset()
    settings_calls: tuple[str, ...] = ()
    settings_of: str = "world"
    given_at: Mapping[str, str] = field(default_factory=dict)
    stops: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    callbacks: tuple[tuple[str, str], ...] = ()
    hooks: tuple[tuple[str, str], ...] = ()
    first_of_host: Mapping[str, frozenset[str]] = field(default_factory=dict)
    causes: Mapping[str, str] = field(default_factory=dict)
    effects: frozenset[str] = frozenset({"parameter"})
    alike: Mapping[tuple[str, str], str] = field(default_factory=dict)
    cards: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
