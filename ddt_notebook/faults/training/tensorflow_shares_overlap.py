"""Workers of TensorFlow whose own shares of the data overlap."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-shares-overlap",
    title="the workers' shares of tf.data overlap",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    options={"framework": "tensorflow"},
    sees="""
        Training runs and the loss falls. Some samples count twice in each epoch, and others may
        never be read; nothing says so.
    """,
    why="""
        With distribute_datasets_from_function, and with AutoShardPolicy.OFF, each worker makes its
        own share. A share that is cut with a wrong offset, with the number of another worker, or
        after a shuffle in which each worker draws an order of its own, holds samples of others.
        Where TensorFlow divides the data, it gives each worker every n-th sample of the order that
        this worker has: shares of different orders overlap, too.
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
            data = data.skip(24 * worker).take(40)
            return data.repeat().batch(batch)


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
    expected=Expected(ranks=(0, 1), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let tf.data cut the shares: "
            "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)",
        ),
        Advice(
            "fix batch size/data partition",
            "shuffle after shard(): each worker draws an order of its own, and shares of different "
            "orders hold the same samples",
        ),
    ),
    cluster="""
        Nothing is logged. Print the first samples of each worker, or their number in the file, and
        compare them.
    """,
    apart={
        "shard-overlap": "a loader of torch reads shares that overlap",
        "tensorflow-data-undivided": "every worker reads all of the data",
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
