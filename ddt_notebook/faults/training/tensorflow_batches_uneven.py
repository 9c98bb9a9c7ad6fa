"""Workers of TensorFlow whose batches have different sizes."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-batches-uneven",
    title="the workers of TensorFlow read batches of different sizes",
    symptoms=("D.2.5", "C.7"),
    views=("partition",),
    options={"framework": "tensorflow"},
    sees="""
        Training runs. The result differs from that of one worker with the same samples, and the
        workers with small batches wait in each step for the others.
    """,
    why="""
        Keras divides the loss of each worker by the size of the worker's own batch, and then takes
        the mean over the workers. A sample in a small batch weighs more than one in a large batch.
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


        def share_of(context):
            worker, batch = context.input_pipeline_id, context.get_per_replica_batch_size(16)
            data = tf.data.Dataset.from_tensor_slices((features, targets))
            data = data.shard(context.num_input_pipelines, worker)
            return data.repeat().batch(batch if worker == 0 else batch // 2)


        data = strategy.distribute_datasets_from_function(share_of)
        history = model.fit(data, epochs=2, steps_per_epoch=4, verbose=0)
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)


        def share_of(context):
            worker, batch = context.input_pipeline_id, context.get_per_replica_batch_size(16)
            data = tf.data.Dataset.from_tensor_slices((features, targets))
            data = data.shard(context.num_input_pipelines, worker)
            return data.repeat().batch(batch)


        data = strategy.distribute_datasets_from_function(share_of)
        history = model.fit(data, epochs=2, steps_per_epoch=4, verbose=0)
    """,
    proof="""
        assert len(history.history["loss"]) == 2
    """,
    expected=Expected(ranks=(1,), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give every worker the same batch size: "
            "context.get_per_replica_batch_size(global_batch_size)",
        ),
        Advice(
            "fix behavior logic",
            "in a training loop of your own, divide each worker's sum of losses by the global "
            "batch size: tf.nn.compute_average_loss(losses, global_batch_size=…)",
        ),
    ),
    cluster="""
        Nothing is logged. The profiles of the workers with small batches show long waits in each
        step.
    """,
    apart={
        "uneven-batch-sizes": "ranks of torch read batches of different sizes",
        "tensorflow-shares-overlap": "the shares of the workers hold the same samples",
    },
    references=(
        Reference(
            "Distributed input",
            "https://www.tensorflow.org/tutorials/distribute/input",
        ),
        Reference(
            "Multi-worker training with Keras",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        ),
    ),
    in_source=False,
)
