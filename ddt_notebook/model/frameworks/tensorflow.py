"""TensorFlow, whose workers meet in graphs that contain collectives."""

from __future__ import annotations

from .description import AloneBegin, Description, JobBegin, Preparation

#: The strategy of several workers, which connects them when it is made.
STRATEGY = "MultiWorkerMirroredStrategy"
_MODULE = "tensorflow.python.distribute.collective_all_reduce_strategy"
_CONFIG, _CHIEF = "tensorflow-config-differs", "tensorflow-chief-alone"

FRAMEWORK = Description(
    name="tensorflow",
    title="TensorFlow",
    in_ranks="ddt_notebook.rank.frameworks.tensorflow:TensorFlow",
    rules="ddt_notebook.diagnosis.rules.tensorflow",
    words="ddt_notebook.diagnosis.tensorflow_wording",
    preparation=Preparation(
        modules=("tensorflow", "tf_keras"),
        install="pip install 'ddt-notebook[tensorflow]'",
        # Each rank would write of missing GPUs, and of each wait that the session ends. What
        # matters reaches the cell as an exception.
        environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
        several_hosts=True,
        # without a cluster in TF_CONFIG
        alone=AloneBegin(module=_MODULE, method="CollectiveAllReduceExtended._initialize_local"),
    ),
    job_begin=JobBegin(
        module=_MODULE,
        method="CollectiveAllReduceExtended._initialize_multi_worker",
        variable="TF_CONFIG",
    ),
    meetings=frozenset({STRATEGY}),
    stand_ins={
        "collective-under-rank-condition": _CHIEF,
        "metric-not-reduced": "tensorflow-result-not-reduced",
        "rank-missing-at-setup": _CONFIG,
        "rank-number-repeated": _CONFIG,
        "rank-outside-world": _CONFIG,
        "rendezvous-differs": _CONFIG,
        "uneven-iterations": "tensorflow-steps-differ",
        "world-size-differs": _CONFIG,
    },
)
