"""The features that depend on private names of PyTorch.

PyTorch may rename or remove a private name in any release. A rank looks every such name up once,
when it starts (``rank/torch_private.py``). If a name is missing, the feature that needs it is off,
and everything else works. The `Snapshot` records which features are off, so that a report can
list what could not be observed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is possible only with private names of PyTorch.

    Attributes
    ----------
    id
        Its name in saved snapshots.
    lost
        What the user loses without it, in one clause.
    symptoms
        Codes of the symptoms whose findings use it as evidence.
    """

    id: str
    lost: str
    symptoms: tuple[str, ...] = ()


#: All features by their ids.
FEATURES: dict[str, Feature] = {}


def _feature(id_: str, lost: str, symptoms: tuple[str, ...] = ()) -> Feature:
    """Add a feature to `FEATURES`."""
    FEATURES[id_] = feature = Feature(id_, lost, symptoms)
    return feature


LIBRARY_COLLECTIVES = _feature(
    "library-collectives",
    "collectives that DDP and other libraries issue themselves are not visible",
    ("C.4", "D.1.1", "D.1.4", "D.2.1", "D.2.3", "D.2.4"),
)
LIBRARY_LINES = _feature(
    "library-lines",
    "the lines at which libraries issued collectives are not known",
    ("C.4", "D.1.1", "D.2.1"),
)
TIMELINE = _feature(
    "timeline",
    "the timeline has no backward passes and no ranges that the code marks",
    ("D.2.3",),
)
LOADERS = _feature(
    "loaders",
    "what the DataLoaders hand out is not recorded",
    ("C.6", "C.7", "D.2.2", "D.2.3", "D.2.5"),
)
PARAMETER_WRITES = _feature(
    "parameter-writes",
    "parameters that are written to between two optimizer steps are not noticed",
    ("D.2.2", "D.2.4", "D.2.5"),
)
USED_MODULES = _feature(
    "used-modules",
    "models outside DDP that a step uses, such as a teacher, are not observed",
    ("D.2.4", "D.2.5"),
)
OWN_CALLS = _feature(
    "own-calls",
    "evaluations of models outside DDP, such as an averaged copy, are not observed",
    ("D.2.4", "D.2.5"),
)
UNUSED_PARAMETERS = _feature(
    "unused-parameters",
    "steps in which DDP found unused parameters are not counted",
    ("D.2.3", "D.2.4"),
)
DDP_BUCKETS = _feature("ddp-buckets", "the sizes of DDP's gradient buckets are unknown", ("D.2.3",))
ACTIVATIONS = _feature(
    "activations",
    "memory that a forward pass keeps for backward is not measured, and whether a loss is a mean "
    "is not known",
    ("D.1.2", "D.2.4"),
)
COMPILED_MODULES = _feature(
    "compiled-modules", "the model inside torch.compile's wrapper is not recognized", ("D.2.2",)
)
UNCOMPILED_RECORDER = _feature(
    "uncompiled-recorder", "torch.compile may try to compile what records a run, and fail"
)
SPARSE_SIZES = _feature("sparse-sizes", "sparse tensors count as 0 bytes")
EARLY_READS = _feature(
    "early-reads", "tensors that are read before wait() are found in the source only", ("D.2.4",)
)
MODELS_FOLLOW = _feature(
    "models-follow",
    "a DDP model does not follow when the process group is formed again; wrap the model again",
)
GROUP_NAMES = _feature(
    "group-names", "process groups may have other names after a group could not be formed"
)
SUBGROUPS = _feature(
    "subgroups",
    "a time limit for one cell reaches the default process group only, and a hang in a group that "
    "a library made, such as that of a device mesh, may lack its missing ranks",
    ("D.2.1", "C.4"),
)
COALESCED = _feature(
    "coalesced", "collectives that are issued as one are counted one by one, and once more together"
)
SIMULATED_GPUS = _feature(
    "simulated-gpus", "GPUs cannot be simulated: the ranks use the CPU", ("C.5", "D.1.3", "D.2.2")
)
REPLAY = _feature("replay", "the inputs of a rank are not kept, and no rank is replayed")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFeature:
    """A feature that is off, since the torch of the ranks lacks names that it needs.

    Attributes
    ----------
    feature
        The `Feature.id`.
    names
        The names that are missing, as ``"module:attribute"``, or why they cannot be used.
    """

    feature: str
    names: tuple[str, ...] = ()

    @property
    def lost(self) -> str:
        """What the user loses, in one clause; the id if this version does not know the feature."""
        known = FEATURES.get(self.feature)
        return known.lost if known is not None else f"{self.feature} is off"

    def concerns(self, symptom: str) -> bool:
        """Whether findings with this symptom use the feature as evidence."""
        known = FEATURES.get(self.feature)
        return known is not None and symptom in known.symptoms

    def __str__(self) -> str:
        return f"{self.lost} (this PyTorch lacks {', '.join(self.names)})"
