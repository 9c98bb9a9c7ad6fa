"""The catalogue of error messages: what each means, how to confirm it, and what to change.

One entry is one message of PyTorch, NCCL, gloo, CUDA or a launcher, in a file of who raises it. A
clue is words that only hint at symptoms, in a file of its stage.
"""

from .catalogue import Kind, Message, message, messages
from .clue import Clue, ClueKind, clues

__all__ = ["Clue", "ClueKind", "Kind", "Message", "clues", "message", "messages"]
