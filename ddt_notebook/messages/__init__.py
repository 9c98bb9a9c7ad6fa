"""The catalogue of error messages: what each means, how to confirm it, and what to change.

One entry is one message of PyTorch, NCCL, gloo, CUDA or a launcher, in a file of who raises it.
"""

from .catalogue import Kind, Message, message, messages

__all__ = ["Kind", "Message", "message", "messages"]
