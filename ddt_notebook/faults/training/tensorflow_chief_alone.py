"""The chief alone calls what all workers of TensorFlow must call."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-chief-alone",
    title="only the chief saves or evaluates the model",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    options={"framework": "tensorflow"},
    sees="""
        Training ends well. Then the chief stands in model.save() or model.evaluate() and does not
        return, while the other workers have finished the program.
    """,
    why="""
        In a MultiWorkerMirroredStrategy, saving and evaluating read variables that are kept on all
        workers, such as metrics, and combine their values. A chief that does so alone waits for the
        others.
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
        import tempfile

        model.fit(data, epochs=1, verbose=0)
        folder = tempfile.mkdtemp()
        if rank == 0:
            model.evaluate(data, verbose=0)
            model.save(os.path.join(folder, "model.keras"))
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)
        import tempfile

        model.fit(data, epochs=1, verbose=0)
        folder = tempfile.mkdtemp()
        model.evaluate(data, verbose=0)
        model.save(os.path.join(folder, "model.keras" if rank == 0 else "worker.keras"))
    """,
    proof="""
        assert os.listdir(folder)
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 13}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call it on every worker; let all but the chief save into a temporary folder, and "
            "delete that afterwards",
        ),
    ),
    cluster="""
        The chief's log ends with the last epoch, and the other workers have exited with status 0.
        Some seconds later the chief may report that a task has stopped sending heartbeats.
    """,
    apart={
        "collective-under-rank-condition": "a rank of torch alone calls a collective",
        "tensorflow-steps-differ": "all workers train, but not for as many steps",
    },
    references=(
        Reference(
            "Multi-worker training with Keras",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        ),
    ),
    in_source=False,
)
