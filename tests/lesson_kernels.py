"""A kernel that nbval uses for one notebook after the other."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import nbval.plugin
import pytest

from .anew import BEGIN, make_new, runs


class Kernel(nbval.plugin.RunningKernel):  # type: ignore[misc]
    """As nbval's own; the kernel of the notebook before is used again if nothing failed in it."""

    _kept: ClassVar[tuple[Any, Any] | None] = None

    def __init__(self, kernel_name: str, cwd: str, startup_timeout: int) -> None:
        self.failed = False
        kept, Kernel._kept = Kernel._kept, None
        if kept is None:
            super().__init__(kernel_name, cwd, startup_timeout)
            assert runs(self.kc, BEGIN)
        else:
            self.km, self.kc = kept
            assert runs(self.kc, f"__import__('os').chdir({cwd!r})")

    def stop(self) -> None:
        """Keep it for the next notebook, or end it."""
        if not self.failed and make_new(self.kc):
            Kernel._kept = self.km, self.kc
        else:
            super().stop()

    @classmethod
    def end(cls) -> None:
        """End the one that is kept."""
        if cls._kept is not None:
            manager, client = cls._kept
            cls._kept = None
            client.stop_channels()
            manager.shutdown_kernel(now=True)


class LessonKernels:
    """Has nbval use these kernels."""

    def __init__(self) -> None:
        nbval.plugin.RunningKernel = Kernel

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a failure, after which the kernel is not used again."""
        kernel = getattr(item.parent, "kernel", None)
        if call.excinfo is not None and isinstance(kernel, Kernel):
            kernel.failed = True
        return (yield)

    def pytest_sessionfinish(self) -> None:
        """End the kernel that is left."""
        Kernel.end()
