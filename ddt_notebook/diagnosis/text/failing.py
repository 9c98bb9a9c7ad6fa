"""Clues of stage D: the program fails with an error of its framework."""

from __future__ import annotations

from .clue import Clue

#: A missing header or shared library belongs to stage A.
_BUILD = r"shared object|fatal error|\.h\b|\.so\b|\.hpp|compil"

CLUES = (
    Clue(
        "NCCL could not form or use its communicator",
        r"""unhandled (system|cuda) error
nccl ?(system|internal|unhandledcuda|invalidusage|remote) ?error
nccl (error|failure|warn)
invalid usage, nccl
ncclcommabort
internal error, nccl""",
        {"D.1.1": 2.6, "B.1": 0.6, "D.1.3": 0.3, "C.3": 0.3},
    ),
    Clue(
        "the connection to another rank broke",
        r"""connection (was likely )?closed by (remote )?peer
connection closed by remote
connection reset by peer
remote process exited
communicator was aborted
broken pipe
socket closed
gloo::ioexception
read -1, expected
readv
peer closed
btl_tcp_endpoint
connection (was )?(lost|aborted)""",
        {"D.1.1": 2.6, "D.1.11": 1.0, "C.2": 0.8, "B.2": 0.2},
        kind="effect",
    ),
    Clue(
        "the ranks called different collectives, or with other arguments",
        r"""detected mismatch between collectives
op\.preamble\.length
received data size doesn't match
mismatched (allreduce|allgather|broadcast|reduce|alltoall|reducescatter)
is there a distributed collective mismatch
duplicate (tensor )?name
collectivefingerprint
must be specified on source rank
non-group member
tensors? must be (contiguous|cuda and dense|same size)
one rank specified""",
        {"D.1.1": 3.4, "D.2.4": 2.2, "D.1.5": 0.6, "D.2.1": 0.4},
    ),
    Clue(
        "Horovod ended on all ranks because one of them failed",
        r"""horovod has been shut ?down
horovodinternalerror
caused by an exception on one of the ranks
after one of the ranks finished""",
        {"D.1.1": 1.8, "C.3": 0.5, "D.2.1": 0.3, "C.8": 0.5},
        kind="effect",
    ),
    Clue(
        "a collective or its framework's operation fails",
        r"""<collective><60><fails>
(error|fail\w*|exception|crash\w*)<50>(all_?reduce|all_?gather|broadcast|all_?to_?all|communicat)
communication error
processgroup\w*::""",
        {"D.1.1": 1.3, "C.3": 0.6, "B.1": 0.3},
        kind="complaint",
    ),
    Clue(
        "the gradient exchange met a graph that it does not expect",
        r"""mark a variable ready only once
training graph has changed
static_graph
apply_gradients
get_gradients
_aggregate_gradients
experimental_run_tf_function""",
        {"D.1.4": 4.0},
    ),
    Clue(
        "some parameters got no gradient in the step before",
        r"""finished reduction in the prior iteration
parameters that were not used in producing loss""",
        {"D.1.4": 4.0},
        "unused-parameters",
    ),
    Clue(
        "the computation graph cannot be executed",
        r"""modified by an inplace operation
backward through the graph a second time
zero_grad\(\) was called
gradients were computed more than
graph is finalized
no gradients provided
attempting to use uninitialized value
failedpreconditionerror
not an element of this graph
unimplementederror
is not in graph
tf\.function
symbolic tensor
placeholder tensor
race condition
was called after loss\.backward
variable creation
eager (mode|execution)
gradient tape
gradienttape
autograd(?!\.backward\(|[/\\])
internalerror
find_unused_parameters""",
        {"D.1.4": 2.2, "D.1.11": 0.4},
    ),
    Clue(
        "an assertion failed",
        r"assertionerror",
        {"D.1.4": 1.4, "D.1.11": 1.0},
    ),
    Clue(
        "the shapes or types of two tensors do not fit",
        r"""incompatible shapes
shape mismatch
mismatched <24>(shape|type|size)
shapes? (do(es)? not|don't|must|mismatch|of)<40>(match|same|broadcast|equal|compatible)
mismatch\w* (shape|size|dimension)
dimension (mismatch|size must|out of range|\d+ (must|of))
shapes cannot be multiplied
size of tensor a
sizes of tensors must match
expected scalar type
must have the same dtype
is invalid for input of size
expected input batch_size
stack expects each tensor
mat1 and mat2
cannot reshape
axes don't match
not divisible by<40>(heads|hidden|dimension)
cannot feed value of shape
to have (shape|\d+ dim)
but got (array|tensor|input)? ?(with|of)? ?(shape|size)
not to match sizes of the same param
expects same model across all ranks
inconsistent \d+ params
invalidargumenterror<80>(shape|size|dimension)
expected (shape|size|dim\w*|\d+ dim)
rank mismatch
\bdtype""",
        {"D.1.5": 3.0, "D.1.4": 0.3, "D.1.1": 0.2},
        "tensor-shapes",
    ),
    Clue(
        "the checkpoint cannot be written or read back",
        r"""pytorchstreamreader
central directory
loaded state dict (has|contains)
unable to (open|create) file
can't pickle \S* ?objects
(save|saving|saved)<50><fails>
<cannot><12> (save|store|restore|checkpoint)
(model_?checkpoint|checkpoint|load_weights|save_weights|save_model)<100><fails>
(corrupt|incomplete|broken)\w* (checkpoint|archive)
(checkpoint|sav)\w*<40>corrupt
torch\.save
(empty|missing) checkpoint
checkpoint<30>(empty|missing|incomplete)
load<20>weight file
layers into a model with
not found in checkpoint""",
        {"D.1.6": 3.0, "C.1": 0.8, "D.1.8": 0.2},
    ),
    Clue(
        "",
        r"""model_?checkpoint
save_model
save_weights
load_weights
model\.save
\.save\(
\.hdf?5
\.ckpt
checkpoint
state_dict
pickle""",
        {"D.1.6": 1.3, "C.1": 0.4},
        kind="context",
    ),
    Clue(
        "",
        r"multi_gpu_model\nmulti[_-]gpu\nparallel_model\ndataparallel",
        {"D.1.6": 0.9, "D.2.2": 0.4, "D.2.3": 0.6, "D.1.5": 0.4, "D.1.4": 0.3},
        kind="context",
    ),
    Clue(
        "a model that was trained on several devices is not saved or loaded rightly",
        r"""(multi[_-]?gpu|parallel\w*|\bddp\b)<80><saved>
<saved>\w*<80>(multi[_-]?gpu|parallel|\bddp\b)""",
        {"D.1.6": 2.2, "C.1": 0.4},
        kind="complaint",
    ),
    Clue(
        "an object lacks the attribute that the code asks for",
        r"""has no attribute
attributeerror
got an unexpected keyword argument
has no member""",
        {"D.1.8": 4.5},
        "attribute-missing",
    ),
    Clue(
        "a path does not exist for this rank",
        r"""\[errno 2\]
\[errno 13\]
\[errno 17\]
filenotfounderror
no such file or directory
can't open file
cannot open file
notadirectoryerror
isadirectoryerror
fileexistserror
permissionerror
not a directory
parent directory
file exists
errno = (2|13|17)\b""",
        {"D.1.9": 4.4, "A.1": 0.2},
        "path-missing",
        apart=_BUILD,
    ),
    Clue(
        "an operation is not implemented for this type, device or backend",
        r"""notimplementederror
not (yet |currently )?implemented
not (yet|currently) supported
is not supported
isn't supported
does not support
doesn't support
unsupported (op|type|dtype|backend|scalar|data)
invalid scalar type
unconvertible nccl type
could not run '\w+::
not implemented for '""",
        {"D.1.10": 3.0, "D.1.4": 0.5},
        "not-implemented",
    ),
    Clue(
        "the program ended with its own exception",
        r"""\bkeyerror
\bvalueerror
\btypeerror
\bindexerror
\bassertionerror
\bzerodivisionerror
\bnameerror
\bunboundlocalerror""",
        {"D.1.11": 1.2, "D.1.4": 0.6, "D.1.5": 0.4, "D.1.6": 0.2, "D.1.3": 0.2},
    ),
)
