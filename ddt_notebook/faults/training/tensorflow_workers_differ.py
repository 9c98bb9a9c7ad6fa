"""Workers of TensorFlow whose variables, statistics or weights differ."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-workers-differ",
    title="the workers of TensorFlow train with different variables or statistics",
    symptoms=("D.2.5", "D.2.4"),
    views=("parity",),
    options={"framework": "tensorflow"},
    sees="""
        Training runs and nothing is reported. The loss is worse than that of one worker, and the
        models that the workers save differ.
    """,
    why="""
        A MultiWorkerMirroredStrategy sums the gradients, and each worker applies the sum to its own
        copy of the variables. It never compares the copies. What a worker restores, assigns or
        computes alone, such as a checkpoint from its own disk, a learning rate by its own loss,
        gradients that nobody sums, or the statistics of a preprocessing layer and class weights
        from its own share of the data, stays different.
    """,
    setup="""
        import json
        import os

        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf
    """,
    broken="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        for epoch in range(3):
            history = model.fit(data, verbose=0)
            if strategy.cluster_resolver.task_id == 0:
                model.optimizer.learning_rate.assign(0.01 / (epoch + 2))
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        for epoch in range(3):
            history = model.fit(data, verbose=0)
            model.optimizer.learning_rate.assign(0.01 / (epoch + 2))
    """,
    proof="""
        assert len(history.history["loss"]) == 1
    """,
    expected=Expected(ranks=(0,), lines={0: 11}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "let all workers restore the same checkpoint, from a folder that all of them can read, "
            "and assign the same values",
        ),
        Advice(
            "fix distributed API usage",
            "let the optimizer sum the gradients, or do it before: "
            "tf.distribute.get_replica_context().all_reduce(…)",
        ),
        Advice(
            "fix behavior logic",
            "decide by what all workers know: strategy.reduce(…) the loss before a schedule looks "
            "at it, and compute statistics and class weights from all data",
        ),
    ),
    cluster="""
        Nothing is logged. The checkpoints that the workers write hold different values.
    """,
    apart={
        "ranks-diverged-learning-rate": "ranks of torch train with different learning rates",
        "tensorflow-ranks-train-alone": "no strategy connects the workers",
    },
    references=(
        Reference(
            "Distributed training with TensorFlow",
            "https://www.tensorflow.org/guide/distributed_training",
        ),
        Reference(
            "Custom training loop with Keras and MultiWorkerMirroredStrategy",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl",
        ),
    ),
    in_source=False,
)
