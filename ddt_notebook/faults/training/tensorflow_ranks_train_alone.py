"""Workers of TensorFlow that train without a strategy that connects them."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-ranks-train-alone",
    title="the workers of TensorFlow train without a strategy",
    symptoms=("D.2.2",),
    views=(),
    options={"framework": "tensorflow"},
    sees="""
        Training runs on every rank, and each rank prints its own loss. The ranks never wait for
        each other, and each of them reads all the data.
    """,
    why="""
        TF_CONFIG alone connects nothing. Only a model that is made in the scope of a
        MultiWorkerMirroredStrategy exchanges gradients. Outside of it, each process trains a model
        of its own, as if it were alone.
    """,
    setup="""
        import json
        import os

        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf
    """,
    broken="""
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        history = model.fit(data, epochs=2, verbose=0)
        print(history.history["loss"])
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        history = model.fit(data, epochs=2, verbose=0)
        print(history.history["loss"])
    """,
    proof="""
        assert model.distribute_strategy.num_replicas_in_sync == 2
    """,
    expected=Expected(ranks=(0, 1), lines={0: 6, 1: 6}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "make tf.distribute.MultiWorkerMirroredStrategy() at the start of the program, and the "
            "model, its optimizer and its metrics in `with strategy.scope():`",
        ),
    ),
    cluster="""
        The log of every worker looks like that of a run on one machine. The checkpoints of the
        workers differ, and more workers do not shorten the time to a given loss.
    """,
    apart={
        "model-not-wrapped": "a model of torch is not wrapped in DDP",
        "tensorflow-data-undivided": "the workers exchange gradients of the same data",
    },
    references=(
        Reference(
            "Multi-worker training with Keras",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        ),
    ),
    in_source=False,
)
