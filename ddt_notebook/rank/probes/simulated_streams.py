"""Streams and events of simulated GPUs: the CPU computes at once, so nothing is ever pending."""

from __future__ import annotations

import time
from typing import Any, Self

import torch

from .simulated import GPU, SimulatedGPUs


class Event:
    """An event that has happened as soon as it is recorded; times are those of the CPU."""

    def __init__(self, enable_timing: bool = False, *_: Any, **__: Any) -> None:
        self._timed = enable_timing
        self._at_s: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._at_s = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_s is None or end_event._at_s is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1e3 * (end_event._at_s - self._at_s)


class Stream:
    """A stream on which all work is done."""

    gpus: SimulatedGPUs  #: set when the simulation begins

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        resolved = self.gpus.resolve(GPU if device is None else device)
        self.device = resolved if resolved is not None else torch.device(device)
        self.priority = priority
        self.stream_id = self.cuda_stream = 0
        self._before: list[Stream | None] = []

    @property
    def device_index(self) -> int:
        return self.device.index or 0

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: Stream) -> None:
        """Return at once."""

    def wait_event(self, event: Event) -> None:
        """Return at once."""

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    @staticmethod
    def is_capturing() -> bool:
        return False

    def __enter__(self) -> Self:
        self._before.append(_current.get(self.device_index))
        _current[self.device_index] = self
        return self

    def __exit__(self, *_: object) -> None:
        before = self._before.pop()
        if before is None:
            _current.pop(self.device_index, None)
        else:
            _current[self.device_index] = before

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device}, simulated>"


#: The current stream of each GPU that is not its default stream.
_current: dict[int, Stream] = {}


class StreamContext:
    """``with torch.cuda.stream(stream)``; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *details: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*details)


def install(gpus: SimulatedGPUs) -> None:
    """Replace the streams and events of ``torch.cuda`` and ``torch.accelerator``."""
    Stream.gpus = gpus
    defaults: dict[int, Stream] = {}

    def default_stream(device: Any = None) -> Stream:
        stream = Stream(device)
        return defaults.setdefault(stream.device_index, stream)

    def current_stream(device: Any = None) -> Stream:
        default = default_stream(device)
        return _current.get(default.device_index, default)

    def set_stream(stream: Stream | None) -> None:
        if stream is not None:
            _current[stream.device_index] = stream

    cuda: Any = torch.cuda
    accelerator: Any = torch.accelerator
    tensor: Any = torch.Tensor
    cuda.Stream, cuda.Event = Stream, Event
    cuda.stream, cuda.StreamContext = StreamContext, StreamContext
    cuda.default_stream, cuda.set_stream = default_stream, set_stream
    cuda.current_stream = accelerator.current_stream = current_stream
    accelerator.set_stream = set_stream
    tensor.record_stream = lambda tensor, stream: None
