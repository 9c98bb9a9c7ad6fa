"""Clues of stage C: data and model are loaded, wrapped and distributed."""

from __future__ import annotations

from .clue import Clue

CLUES = (
    Clue(
        "the keys of model and checkpoint differ",
        r"""missing key\(s\) in state_dict
unexpected key\(s\) in state_dict
error\(s\) in loading state_dict
unexpected key in source state_dict""",
        {"C.1": 5.0, "D.1.6": 1.4},
        "state-dict",
    ),
    Clue(
        "a parameter of the checkpoint has another shape",
        r"size mismatch for [\w.]+",
        {"C.1": 4.5, "D.1.5": 1.6},
        "state-dict-shape",
    ),
    Clue(
        "the checkpoint holds more than tensors",
        r"""not an allowed global
weightsunpickler""",
        {"C.1": 5.0, "C.8": 1.4, "D.1.6": 1.0},
        "weights-only",
    ),
    Clue(
        "the checkpoint was saved on a device that is not here",
        r"attempting to deserialize object on",
        {"C.1": 5.0, "C.5": 2.0, "D.1.6": 1.6},
        "checkpoint-device",
    ),
    Clue(
        "a saved model cannot be loaded",
        r"""unknown (optimizer|layer|loss function|initializer)
<fails><40.>\bload\w*<40.>(model|optimizer|weights|checkpoint)
load_model
from_pretrained
\bload\w* (the |a )?(saved |pretrained |pre-trained )(model|weights|optimizer)""",
        {"C.1": 2.8, "D.1.6": 1.2},
        kind="complaint",
    ),
    Clue(
        "a worker of the DataLoader failed",
        r"""dataloader worker
caught \w+ in dataloader worker""",
        {"C.2": 5.0},
        "dataloader-worker",
    ),
    Clue(
        "the data cannot be read",
        r"""badzipfile
dataset not found
file not found or corrupted
(mnist|cifar|imagenet|dataset|\bdata\b|\.gz|\.zip)<40>(corrupt|truncated)
dataloss ?error
outofrange ?error
petastorm
urllib
http/client
urlopen error
httperror
(load\w*|read\w*) (the )?(data|dataset|images|tfrecord)<40>(fail|error|crash)
data ?load\w*<40>(fail|error|crash)""",
        {"C.2": 2.6, "C.8": 1.6, "D.1.9": 0.3},
    ),
    Clue(
        "",
        r"""(download\w*|extract\w*|unzip\w*)<60>(mnist|cifar|imagenet|dataset|data-\d|\.[gn]?z(ip)?)
(mnist|cifar|imagenet|dataset)<40>download""",
        {"C.2": 2.0, "C.8": 0.6, "C.4": 0.3},
        kind="context",
    ),
    Clue(
        "exchanging the first weights or objects fails",
        r"""broadcast_(parameters|optimizer_state|variables|global_variables|object|coalesced)
broadcastglobalvariables
broadcast_object
allgather_object
all_gather_object
_sync_params
_sync_module_states
_verify_param_shape""",
        {"C.3": 2.4, "C.4": 1.3, "D.1.1": 0.3},
        kind="context",
    ),
    Clue(
        "the first exchange of weights fails",
        r"""(traceback|line \d+|\bat\b|\bin\b|the line)<80><broadcast>
error in (the )?broadcast_(parameters|optimizer|variables)
(initial|first) broadcast""",
        {"C.3": 2.4, "C.4": 0.6},
    ),
    Clue(
        "an object cannot be pickled for the other ranks",
        r"""can't pickle
cannot pickle
picklingerror""",
        {"C.3": 4.5, "D.1.6": 0.8, "B.1": 0.6},
        "unpicklable-object",
    ),
    Clue(
        "the list of results has another length than the group",
        r"""invalid output tensor list
must match number of collective participants""",
        {"C.3": 5.0, "D.1.1": 1.0},
        "output-list-length",
    ),
    Clue(
        "splitting the data between ranks fails",
        r"""\.shard\(
dataset\.shard
shard<30>(error|fail)""",
        {"C.3": 1.6, "C.7": 1.0, "D.2.2": 0.4},
        kind="context",
    ),
    Clue(
        "chunks or ranks do not fit the group",
        r"""invalid tensor size at index
tensor list must have same size
rank should be in the interval
number of (samples|shards|partitions)<40>(less|smaller|not divisible|must be)
not divisible by<40>(world|replica|number of (gpus|ranks|workers|replicas|devices|processes|shards))
invalid rank \d+
partition\w* (error|fail)""",
        {"C.7": 4.0, "D.1.1": 0.8},
        "uneven-chunks",
    ),
    Clue(
        "the run hangs while model or data are prepared",
        r"""<hang><110><preparation>
<preparation><80><hang>""",
        {"C.4": 3.6, "B.2": 0.4, "D.2.1": 0.4},
        kind="complaint",
    ),
    Clue(
        "",
        r"""distributeddataparallel\(
torch/nn/parallel/distributed\.py<20>in __init__
deepspeed\.initialize
fullyshardeddataparallel\(""",
        {"C.4": 1.2, "C.5": 0.5, "C.3": 0.8},
        kind="context",
    ),
    Clue(
        "the model cannot be wrapped",
        r"""is not needed when a module doesn't have any parameters
(wrap\w*|construct\w*)<60>(\bddp\b|distributeddataparallel|dataparallel|fsdp|distributedoptimizer)
(\bddp\b|distributeddataparallel|dataparallel|fsdp|distributedoptimizer)<60>(wrap|constructor)""",
        {"C.8": 2.0, "C.5": 0.6, "C.4": 0.5, "C.3": 0.3},
        kind="context",
    ),
    Clue(
        "there are fewer devices than the ranks ask for",
        r"""duplicate gpu detected""",
        {"C.5": 4.2, "D.1.3": 2.9, "C.3": 0.4},
        "device-ordinal",
    ),
    Clue(
        "the device is not there",
        r"""not compiled with cuda
no nvidia driver
driver version is insufficient
driver on your system is too old
no cuda-capable device
cuda unknown error
cuda_error_no_device""",
        {"C.5": 4.2, "D.1.3": 2.9, "C.3": 0.4},
        "no-cuda",
    ),
    Clue(
        "device_ids were given for a model on the CPU",
        r"device_ids and output_device arguments only work",
        {"C.5": 5.0, "D.1.3": 1.0},
        "device-ids-on-cpu",
    ),
    Clue(
        "iterating over the data fails",
        r"""expected unspecified sampler
stopiteration
object is not iterable
object is not an iterator
iterabledataset
end of sequence
has no len\(\)
drop_last""",
        {"C.6": 3.0, "C.2": 0.6},
        "sampler-with-iterable",
    ),
    Clue(
        "",
        r"""load\w* (the )?(data|dataset)
prepar\w+
data ?loader
dataset
tfrecord
sampler""",
        {"C.2": 0.5, "C.6": 0.3, "C.7": 0.3, "C.4": 0.2},
        kind="context",
    ),
)
