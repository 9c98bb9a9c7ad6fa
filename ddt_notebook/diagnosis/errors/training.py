"""Patterns for exceptions of stages C and D: preparation of data and model, training."""

from __future__ import annotations

from .pattern import Pattern

#: The keys of model and checkpoint differ only in the prefix of the wrapper.
_PREFIX = (
    r'loading state_dict[\s\S]*Missing key\(s\) in state_dict: "(module\.)?([^"]+)"'
    r'[\s\S]*Unexpected key\(s\) in state_dict: "(module\.)?\2"'
)
_MEMORY = r"[Cc]an(no|')t allocate memory|[Oo]ut of memory|not enough memory|bad_alloc"
_DEVICES = (
    r"Expected all tensors to be on the same device|indices should be either on"
    r"|Input type \(torch\.(cuda\.)?\w+\) and weight type"
)
_SHAPES = (
    r"shapes cannot be multiplied|size of tensor a .* must match|[Ss]ize mismatch|mat1 and mat2"
    r"|[Ss]hape mismatch|is invalid for input of size|Expected input batch_size"
    r"|must have the same dtype|expected scalar type|[Ss]izes of tensors must match"
    r"|expanded size of the tensor|stack expects each tensor to be equal size"
    r"|a Tensor with \d+ elements cannot be converted|Dimension out of range"
    r"|Expected hidden(\[\d\])? size|Given groups=\d+, weight of size|running_mean should contain"
    r"|Found dtype \w+ but expected|to have the same dtype|more than 1 value per channel"
    r"|too many indices for tensor"
)
_FOLDERS = r"\b(makedirs|mkdir)\b"
_ITEMS = r"torch/utils/data/_utils/(fetch|collate)"
_MODULE = r"^module '(?!__main__)[\w.]+' has no attribute"
_NO_CUDA = r"not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs|no attribute '_cuda_\w+'"
_NOT_ALLOWED = r"Weights only load failed[\s\S]*(allowed global|Unsupported (glo|cla)|Trying to)"

#: The first pattern that fits is used, so specific patterns come first.
PATTERNS = (
    # Errors about memory and missing files are recognised in every stage.
    Pattern("D.1.2", "out-of-memory", _MEMORY, r"^(RuntimeError|Accelerator\w*|OSError|Sys\w+)$"),
    Pattern("D.1.2", "out-of-memory", types=r"^(MemoryError|OutOfMemoryError)$"),
    # C · data & model preparation
    Pattern("C.2", "dataloader-worker", r"DataLoader worker"),
    Pattern("D.1.9", None, types=r"^(FileNotF|Permis)\w+$", files=r"subprocess\.py ", seen=True),
    Pattern("D.1.9", "path-missing", types=r"^(FileNotFoundError|NotADirectoryError)$"),
    Pattern("D.1.9", "path-missing", r"No such file or directory|Parent directory .* not exist"),
    Pattern("D.1.9", "folder-made-by-every-rank", r"File exists", files=_FOLDERS, seen=True),
    Pattern("D.1.9", None, types=r"^(FileExists|IsADirectory|Permission)Error$"),
    Pattern("C.2", "dataset-item-fails", files=_ITEMS, seen=True),
    Pattern("C.1", "state-dict-prefix", _PREFIX),
    Pattern("C.1", "state-dict-shape", r"loading state_dict[\s\S]*size mismatch"),
    Pattern("C.1", "state-dict", r"loading state_dict"),
    Pattern("C.1", "weights-only", _NOT_ALLOWED),
    Pattern("C.1", "checkpoint-device", r"deserialize object on (a )?(CUDA|MPS|XPU) device"),
    Pattern("C.3", "unpicklable-object", r"[Pp]ickle|local object", ops=r"_object|_tensor_to_obj"),
    Pattern("C.3", "output-list-length", r"invalid output tensor list"),
    Pattern("C.7", "uneven-chunks", r"scatter: invalid tensor size"),
    Pattern("C.6", "sampler-with-iterable", r"IterableDataset: expected unspecified"),
    Pattern("C.6", "sampler-with-shuffle", r"sampler option is mutually exclusive with shuffle"),
    Pattern("C.6", "uneven-iterations", r"exhausted all inputs", ops=r"_notify_procs_to_term"),
    Pattern("C.6", "iterator-exhausted", types=r"^StopIteration$"),
    Pattern("C.6", "iterator-exhausted", r"generator raised StopIteration"),
    Pattern("C.5", "device-ids-on-cpu", r"device_ids and output_device arguments only work"),
    Pattern("C.5", "no-cuda", _NO_CUDA),
    Pattern("C.5", "device-ordinal", r"invalid device ordinal|Duplicate GPU detected"),
    # D · training & evaluation
    Pattern("D.1.3", "tensors-on-two-devices", _DEVICES),
    Pattern("D.1.3", "device-error", r"CUDA error|device-side assert|cuDNN|cuBLAS|CUBLAS"),
    Pattern("D.1.3", None, r"meta tensor; no data"),
    Pattern("D.1.3", None, r"can't convert \w+(:\d+)? device type tensor to numpy"),
    Pattern("D.1.4", "unused-parameters", r"finished reduction in the prior iteration"),
    Pattern("D.1.4", "parameter-ready-twice", r"mark a variable ready only once"),
    Pattern("D.1.4", "inplace-change", r"modified by an inplace operation"),
    Pattern("D.1.4", "graph-changed", r"training graph has changed"),
    Pattern("D.1.4", "graph-freed", r"backward through the graph a second time"),
    Pattern("D.1.4", None, r"does not require grad and does not have a grad_fn"),
    Pattern("D.1.5", "models-differ", r"not to match sizes of the same param|expects same model"),
    Pattern("D.1.5", "tensor-shapes", _SHAPES),
    Pattern("D.1.10", "dtype-not-supported", r"Invalid scalar type|Unconvertible NCCL type"),
    Pattern(
        "D.1.10",
        "not-implemented",
        r"not (yet |currently )?implemented for|Could not run '|does not support|not supported",
        types=r"^(RuntimeError|NotImplementedError|DistBackendError)$",
    ),
    Pattern("D.1.10", None, types=r"^NotImplementedError$"),
    Pattern("D.1.6", "checkpoint-unreadable", r"PytorchStreamReader|central directory"),
    Pattern(
        "D.1.6",
        "checkpoint-unreadable",
        types=r"^(EOFError|UnpicklingError)$",
        files=r"torch/serialization|pickle",
    ),
    Pattern("D.1.6", "checkpoint-unreadable", files=r"torch/_weights_only_unpickler", seen=True),
    Pattern("D.1.6", None, r"[Cc]an('t|not) pickle|StreamWriter", files=r"torch/serial", seen=True),
    Pattern("D.1.6", "optimizer-state", r"loaded state dict (has|contains)"),
    Pattern("D.1.8", "wrapped-by-ddp", r"'(Distributed)?DataParallel' object has no attribute"),
    Pattern("D.1.8", "attribute-missing", _MODULE, types=r"^AttributeError$"),
    Pattern("D.1.8", None, types=r"^AttributeError$"),
    Pattern("D.1.11", "process-exit", types=r"^SystemExit$"),
    Pattern("D.1.1", "collective-arguments", r"ProcessGroup\w+::|Received data size"),
    Pattern("D.1.1", "collective-arguments", types=r"^Dist\w*Error$"),
)  # fmt: skip
