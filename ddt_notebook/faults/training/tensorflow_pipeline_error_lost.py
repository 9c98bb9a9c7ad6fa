"""A function of a pipeline of TensorFlow raises, and training goes on without the rest."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-pipeline-error-lost",
    title="an exception in a pipeline of TensorFlow counts as the end of the data",
    symptoms=("C.2", "D.2.5"),
    views=("partition",),
    options={"framework": "tensorflow"},
    sees="""
        Training ends without an error and sooner than expected. The log of one worker has a warning
        with the exception, among many others.
    """,
    why="""
        Where a strategy of several workers fetches batches, an exception in a Python function of a
        worker's pipeline may arrive as the end of its data. Then all workers end their epoch.
    """,
    setup="""
        import json
        import os

        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import numpy as np
        import tensorflow as tf
    """,
    broken="""
        def parse(line):
            value = float(line)
            return np.array([value], "float32"), np.array([value % 2], "float32")


        def load(line):
            value, label = tf.numpy_function(parse, [line], (tf.float32, tf.float32))
            return tf.ensure_shape(value, [1]), tf.ensure_shape(label, [1])


        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        lines = [str(at) for at in range(41)] + ["forty-one"] + [str(at) for at in range(42, 64)]
        data = tf.data.Dataset.from_tensor_slices(lines).shard(2, rank).map(load).batch(8)
        options, policies = tf.data.Options(), tf.data.experimental.AutoShardPolicy
        options.experimental_distribute.auto_shard_policy = policies.OFF
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer=tf.keras.optimizers.SGD(1e-4), loss="mse")
        history = model.fit(data.with_options(options), verbose=0)
    """,
    fixed="""
        def parse(line):
            value = float(line) if line.isdigit() else 41.0
            return np.array([value], "float32"), np.array([value % 2], "float32")


        def load(line):
            value, label = tf.numpy_function(parse, [line], (tf.float32, tf.float32))
            return tf.ensure_shape(value, [1]), tf.ensure_shape(label, [1])


        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        lines = [str(at) for at in range(41)] + ["forty-one"] + [str(at) for at in range(42, 64)]
        data = tf.data.Dataset.from_tensor_slices(lines).shard(2, rank).map(load).batch(8)
        options, policies = tf.data.Options(), tf.data.experimental.AutoShardPolicy
        options.experimental_distribute.auto_shard_policy = policies.OFF
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer=tf.keras.optimizers.SGD(1e-4), loss="mse")
        history = model.fit(data.with_options(options), verbose=0)
    """,
    proof="""
        assert np.isfinite(history.history["loss"][0])
    """,
    expected=Expected(ranks=(1,), lines={1: 2}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "repair the sample or the function; iterate over the data set once without the "
            "strategy: that raises the exception",
        ),
    ),
    cluster="""
        The exception stands in a warning of local_rendezvous.cc or op_kernel.cc in the log of one
        worker; TF_CPP_MIN_LOG_LEVEL=2 hides it.
    """,
    apart={
        "tensorflow-steps-differ": "workers take different numbers of steps, and one waits",
        "tensorflow-batches-uneven": "the workers read batches of different sizes",
    },
    references=(
        Reference(
            "Distributed input",
            "https://www.tensorflow.org/tutorials/distribute/input",
        ),
        Reference(
            "tf.numpy_function",
            "https://www.tensorflow.org/api_docs/python/tf/numpy_function",
        ),
    ),
    in_source=False,
)
