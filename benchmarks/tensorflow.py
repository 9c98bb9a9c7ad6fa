"""What a session for TensorFlow takes: its start, memory after a fit, and the record of a step.

Run it where TensorFlow is installed: ``.venv-tensorflow/bin/python -m benchmarks.tensorflow``.
"""

from __future__ import annotations

import statistics
import time

import psutil

from ddt_notebook.host.session import Session
from tests.tensorflow.tensorflow_programs import CUSTOM_LOOP, FIT

from .common import Figure

RANKS = 4
_STEPS = 100
#: Splits the processor time of recorded calls into TensorFlow's part and the recorder's.
_SPLIT = """
import time
from ddt_notebook.rank.frameworks.tensorflow import TensorFlow

inner = outer = 0.0


def split(name):
    made = getattr(TensorFlow, name)

    def call(self, *given):
        def function():
            global inner
            began = time.thread_time()
            try:
                return given[-1]()
            finally:
                inner += time.thread_time() - began

        global outer
        began = time.thread_time()
        try:
            return made(self, *given[:-1], function)
        finally:
            outer += time.thread_time() - began

    setattr(TensorFlow, name, call)


for name in ("executed", "ran_eagerly"):
    split(name)
"""
_STEP = f"""
iterator = iter(strategy.experimental_distribute_dataset(dataset.repeat()))
for _ in range(5):
    train_step(next(iterator))
inner = outer = 0.0
began = time.process_time()
for _ in range({_STEPS}):
    train_step(next(iterator))
share = 100 * (outer - inner) / (time.process_time() - began)
"""


def measure() -> list[Figure]:
    began = time.perf_counter()
    with Session(RANKS, framework="tensorflow") as session:
        first_s = time.perf_counter() - began
        again = []
        for _ in range(5):
            began = time.perf_counter()
            session.restart()
            again.append(time.perf_counter() - began)
        assert session.run(FIT).ok
        private = [
            psutil.Process(handle.pid).memory_full_info().uss / (1 << 20)
            for handle in session.pool.handles
        ]
        session.restart()
        assert session.run(CUSTOM_LOOP).ok
        assert session.run(_SPLIT).ok
        shares = []
        for _ in range(5):
            assert session.run(_STEP).ok
            shares.append(float(str(session.pull("share"))))
    return [
        Figure(f"{RANKS} ranks for TensorFlow, first time", first_s, 15.0, "s"),
        Figure("the same, again", statistics.median(again), 1.0, "s"),
        Figure("private memory of a rank after a fit", max(private), 300.0, "MB"),
        Figure("recorder's processor time, of a step", statistics.median(shares), 2.0, "%"),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
