"""A temporary working directory of all ranks, for a card that writes files."""

from __future__ import annotations

#: The setup cell of such a card. The folder is removed when the process of rank 0 ends.
SCRATCH = """
import os, tempfile
scratch = tempfile.TemporaryDirectory() if rank == 0 else None
shared = [scratch.name if rank == 0 else None]
dist.broadcast_object_list(shared, src=0)
os.chdir(shared[0])
"""
