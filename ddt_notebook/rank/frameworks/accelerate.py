"""What Accelerate keeps for the life of a process, forgotten between scripts."""

from __future__ import annotations

import sys

from .framework import Framework


class Accelerate(Framework):
    """Hugging Face Accelerate."""

    def begin_script(self) -> None:
        """Forget how Accelerate found this process launched: that group ended with its script.

        Accelerate keeps this for the life of a process, in a dictionary on each of its state
        classes.
        """
        state = sys.modules.get("accelerate.state")
        for name in ("PartialState", "AcceleratorState", "GradientState"):
            kept = getattr(getattr(state, name, None), "_shared_state", None)
            if isinstance(kept, dict):
                kept.clear()
