"""A server that does not outlive its reader: what is idle is stopped, and frees its memory.

``DDT_IDLE_MINUTES`` says after how many minutes; 0 switches it off. When a kernel is stopped, the
ranks that it started end with it.
"""

from __future__ import annotations

import os

c = get_config()  # noqa: F821 (defined by Jupyter)

_idle_s = int(float(os.environ.get("DDT_IDLE_MINUTES", "10")) * 60)
_check_s = max(1, min(60, _idle_s // 2))

# A kernel is in use while a cell runs, not because a tab is open.
c.MappingKernelManager.cull_idle_timeout = _idle_s
c.MappingKernelManager.cull_interval = _check_s
c.MappingKernelManager.cull_connected = True
c.MappingKernelManager.cull_busy = False
c.TerminalManager.cull_inactive_timeout = _idle_s
c.TerminalManager.cull_interval = _check_s
c.ServerApp.shutdown_no_activity_timeout = _idle_s
