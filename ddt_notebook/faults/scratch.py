"""A folder of its own for a card that writes files: the working directory of all ranks."""

from __future__ import annotations

#: The setup cell of such a card. The folder goes when the process of rank 0 ends.
SCRATCH = """
import os, tempfile
scratch = tempfile.TemporaryDirectory() if rank == 0 else None
shared = [scratch.name if rank == 0 else None]
dist.broadcast_object_list(shared, src=0)
os.chdir(shared[0])
"""
