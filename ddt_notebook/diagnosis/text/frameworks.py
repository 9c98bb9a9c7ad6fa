"""Finds the frameworks that a text names."""

from __future__ import annotations

import re

#: In the order of the search: frameworks that build on another one come first.
_WORDS = {
    "deepspeed": r"deepspeed|\bds_report|zero_optimization|zero-?(2|3)\b|stage3_",
    "megatron": r"megatron|\bmpu\.|tensor-model-parallel|initialize_megatron",
    "colossalai": r"colossal[-_ ]?ai\b|colossalai|gemini",
    "horovod": r"horovod|\bhvd\b",
    "keras": r"multi_gpu_model|\bkeras\b",
    "tensorflow": r"tensorflow|\btf\.|tf_config",
    "pytorch": r"torch|\bddp\b|c10d|\bnccl\b|\bgloo\b",
}
_TITLES = {
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron-LM",
    "colossalai": "Colossal-AI",
    "horovod": "Horovod",
    "keras": "Keras",
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
}


def of(lower: str) -> list[str]:
    """Return the names of the frameworks in a text in lower case, the outermost first."""
    return [name for name, words in _WORDS.items() if re.search(words, lower)]


def title(name: str) -> str:
    """Return the name as the framework writes it."""
    return _TITLES[name]
