"""Clues of stage D: memory or a device fails, or a process dies."""

from __future__ import annotations

from .clue import Clue

CLUES = (
    Clue(
        "memory is used up",
        r"""out[ _]of[ _]memory
\boom\b
oom-?kill
resource ?_?exhausted
can(no|')t allocate memory
cannot allocate memory
bad_alloc
not enough memory
insufficient memory
failed to allocate
outofmemoryerror
memoryerror
bus error""",
        {"D.1.2": 4.6},
        "out-of-memory",
    ),
    Clue(
        "a run takes more and more memory",
        r"""memory (leak|usage|consumption|keeps|grow|increas|issue|overflow|footprint)
(more|too much|gpu|cpu|host|shared|enough|increas\w+|all( the)?) memory
memory<40>(grow|increas|leak|full|exceed)
\bram\b""",
        {"D.1.2": 2.0, "D.2.2": 0.4, "D.2.3": 0.3},
        kind="complaint",
    ),
    Clue(
        "an operation cannot be placed on its device",
        r"""op type not registered
no op named
no gradient defined for operation
no opkernel was registered
could not find device
all kernels registered for op
cannot assign a device
could not satisfy<40>device
is not compatible with<40>device
no registered '\w+' opkernel
(physical|visible) devices cannot be modified
must be set before (gpus|physical devices)
set_visible_devices
visible_device_list
unknown device
invalid device (id|function)
cuda_error_invalid_device
all devices must be
device index
list index out of range<80>rank
local_rank<80>(out of range|indexerror)""",
        {"D.1.3": 3.8, "D.2.2": 0.3, "C.5": 0.6},
    ),
    Clue(
        "tensors are on two devices",
        r"""indices should be either on
input type \(?torch\.(cuda\.)?\w+\)? and weight type
expected (device|object of)<60>(cuda|cpu|device)
(must|should|to) be on the same (device|gpu)""",
        {"D.1.3": 4.5, "C.5": 1.0},
        "tensors-on-two-devices",
    ),
    Clue(
        "CUDA or one of its libraries reports an error",
        r"""cuda error
cuda runtime error
cudnn_status
cublas_status
cudnn error
cublas error
thcudacheck
cuda_error_(?!out)
device-side assert
cuda driver version
failed to create cublas handle
failed to get convolution algorithm
cuda initialization""",
        {"D.1.3": 2.4, "C.5": 0.8, "C.3": 0.6, "D.1.7": 0.5},
        "device-error",
    ),
    Clue(
        "a process crashed with a segmentation fault",
        r"""segmentation fault
seg ?-?fault
sigsegv
signal:? 11
signal \(?11
address not mapped
failing at address
exitcode *:? -11
(?<!aborted \()core dumped
exit ?code *:? 139
double free
(free|munmap_chunk|malloc|realloc)\(\):
__gi_raise
corrupted (size|double|unsorted|double-linked)
stack smashing""",
        {"D.1.7": 5.0},
        "segmentation-fault",
    ),
    Clue(
        "a process was aborted by its own C or C++ code",
        r"""sigabrt
sigbus
sigill
illegal instruction
signal:? (4|6|7)\b
exitcode *:? -(6|7)\b
terminate called
what\(\): """,
        {"D.1.7": 1.5, "D.1.1": 0.6, "D.1.2": 0.4},
        "native-abort",
    ),
    Clue(
        "the device was given an address that is not its own",
        r"""illegal memory access
illegal_address
illegal address
misaligned address""",
        {"D.1.7": 3.0, "D.1.3": 1.2},
    ),
    Clue(
        "a process was killed from outside",
        r"""exitcode *:? -9
exit ?code *:? 137
sigkill
signal:? 9\b
signal \(?9\b
\bkilled\b
preempt""",
        {"D.1.11": 2.5, "D.1.2": 2.5, "B.1": 0.2},
        "killed-from-outside",
    ),
    Clue(
        "the scheduler ended the job",
        r"""due to preemption
job \d+ cancelled
walltime<20>exceeded""",
        {"D.1.11": 3.4},
    ),
)
