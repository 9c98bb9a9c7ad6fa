"""A server that does not outlive its reader: what nobody looks at is stopped, and frees its memory.

``DDT_IDLE_MINUTES`` says after how many minutes; 0 switches it off. When a kernel is stopped, the
ranks that it started end with it. A kernel with an open page is never stopped, however long its
reader thinks or a teacher talks: only its ranks stop when they have not been used for long or the
memory is nearly full, as ``%config DDT.idle_minutes`` describes.
"""

from __future__ import annotations

import os

c = get_config()  # noqa: F821 (defined by Jupyter)

_idle_s = int(float(os.environ.get("DDT_IDLE_MINUTES", "10")) * 60)
_check_s = max(1, min(60, _idle_s // 2))

c.MappingKernelManager.cull_idle_timeout = _idle_s
c.MappingKernelManager.cull_interval = _check_s
c.MappingKernelManager.cull_connected = False
c.MappingKernelManager.cull_busy = False
c.TerminalManager.cull_inactive_timeout = _idle_s
c.TerminalManager.cull_interval = _check_s
c.ServerApp.shutdown_no_activity_timeout = _idle_s
