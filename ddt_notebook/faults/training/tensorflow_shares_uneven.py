"""A worker of TensorFlow whose share of the data ends early."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-shares-uneven",
    title="a worker's share of tf.data ends long before those of the others",
    symptoms=("C.7", "D.2.5"),
    views=("partition",),
    options={"framework": "tensorflow"},
    sees="""
        Training runs to its end. The steps at the end of each epoch take as long as the others, and
        the model learns less from them.
    """,
    why="""
        TensorFlow divides files among the workers, and does not look at how much each holds. A
        worker whose share has ended gets empty batches until the last worker has ended. A loss that
        is divided by the global batch size is then too small, and layers that look at the whole
        batch, such as batch normalisation, get nothing.
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
        features = tf.random.stateless_uniform([96, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)


        def share_of(context):
            batch = context.get_per_replica_batch_size(16)
            data = tf.data.Dataset.from_tensor_slices((features, targets))
            data = data.take(72) if context.input_pipeline_id == 0 else data.skip(72)
            return data.batch(batch)


        data = strategy.distribute_datasets_from_function(share_of)
        history = model.fit(data, steps_per_epoch=6, verbose=0)
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([96, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)


        def share_of(context):
            batch = context.get_per_replica_batch_size(16)
            data = tf.data.Dataset.from_tensor_slices((features, targets))
            data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
            return data.batch(batch)


        data = strategy.distribute_datasets_from_function(share_of)
        history = model.fit(data, steps_per_epoch=6, verbose=0)
    """,
    proof="""
        assert len(history.history["loss"]) == 1
    """,
    expected=Expected(ranks=(1,), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "divide samples instead of files: AutoShardPolicy.DATA, or shard(…) after the files "
            "were read; or write files of equal size",
        ),
        Advice(
            "fix behavior logic",
            "repeat() the data, and let all workers make the same number of steps: "
            "steps_per_epoch=…",
        ),
    ),
    cluster="""
        The logs show the same number of steps for every worker. With verbose logs, TensorFlow says
        that it divides the data by files.
    """,
    apart={
        "tensorflow-batches-uneven": "the workers' batches have different sizes",
        "tensorflow-steps-differ": "a worker makes fewer steps, and the others wait",
    },
    references=(
        Reference(
            "Distributed input",
            "https://www.tensorflow.org/tutorials/distribute/input",
        ),
    ),
    in_source=False,
)
