"""Workers of TensorFlow that all read all the data."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-data-undivided",
    title="tf.data is not divided among the workers",
    symptoms=("D.2.2", "C.7"),
    views=("partition",),
    options={"framework": "tensorflow"},
    sees="""
        Training runs and the loss falls. An epoch takes as many steps as on one worker, and more
        workers do not make the result better.
    """,
    why="""
        With AutoShardPolicy.OFF, and with distribute_datasets_from_function, TensorFlow leaves the
        division of the data to the program. Workers with equal pipelines then read equal samples,
        compute equal gradients, and their mean is the gradient of one worker.
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
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        data = data.with_options(options)
        history = model.fit(data, epochs=2, verbose=0)
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.DATA
        )
        data = data.with_options(options)
        history = model.fit(data, epochs=2, verbose=0)
    """,
    proof="""
        assert len(history.history["loss"]) == 2
        assert data.options().experimental_distribute.auto_shard_policy.name == "DATA"
    """,
    expected=Expected(ranks=(0, 1), lines={0: 13, 1: 13}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let TensorFlow divide the data (AutoShardPolicy.DATA or AUTO), or take each worker's "
            "share yourself: dataset.shard(context.num_input_pipelines, context.input_pipeline_id)",
        ),
    ),
    cluster="""
        Nothing is logged. An epoch has the same number of steps with 1 and with 8 workers, and the
        loss curve of 8 workers is that of one worker.
    """,
    apart={
        "no-distributed-sampler": "a DataLoader of torch reads all the data on every rank",
        "tensorflow-ranks-train-alone": "the workers do not exchange gradients",
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
