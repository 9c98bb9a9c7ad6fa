"""A result of one worker of TensorFlow that is shown as that of all."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-result-not-reduced",
    title="the chief shows what its own replica returned as the result of all workers",
    symptoms=("D.2.4",),
    options={"framework": "tensorflow"},
    sees="""
        The loss that is logged is too small by the number of workers, or jumps more than with one
        worker. The variables are right.
    """,
    why="""
        strategy.run returns what each replica computed from its own part of the batch. On a worker
        with one replica that is an ordinary tensor, which can be printed although nothing has
        combined it. A loss that is divided by the size of the global batch is only a summand then.
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
            optimizer = tf.keras.optimizers.SGD(0.01)
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)


        @tf.function
        def train_step(batch):
            def step(inputs):
                x, y = inputs
                with tf.GradientTape() as tape:
                    losses = tf.math.squared_difference(model(x, training=True), y)
                    loss = tf.nn.compute_average_loss(losses[:, 0], global_batch_size=16)
                found = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(found, model.trainable_variables))
                return loss

            return strategy.run(step, args=(batch,))


        for number, batch in enumerate(strategy.experimental_distribute_dataset(data)):
            loss = train_step(batch)
            if rank == 0:
                print(f"step {number}: loss {float(loss):.4f}")
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            optimizer = tf.keras.optimizers.SGD(0.01)
        features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
        targets = tf.reduce_sum(features, 1, keepdims=True)
        data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16)


        @tf.function
        def train_step(batch):
            def step(inputs):
                x, y = inputs
                with tf.GradientTape() as tape:
                    losses = tf.math.squared_difference(model(x, training=True), y)
                    loss = tf.nn.compute_average_loss(losses[:, 0], global_batch_size=16)
                found = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(found, model.trainable_variables))
                return loss

            return strategy.reduce("sum", strategy.run(step, args=(batch,)), axis=None)


        for number, batch in enumerate(strategy.experimental_distribute_dataset(data)):
            loss = train_step(batch)
            if rank == 0:
                print(f"step {number}: loss {float(loss):.4f}")
    """,
    proof="""
        assert int(optimizer.iterations.numpy()) == 4
    """,
    expected=Expected(ranks=(0,), lines={0: 27}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "combine what the replicas returned on every worker, and show that: "
            "strategy.reduce(tf.distribute.ReduceOp.SUM, …, axis=None)",
        ),
        Advice(
            "fix behavior logic",
            "show the result of a metric of Keras that was made in the strategy's scope: it reads "
            "the counts of all workers",
        ),
    ),
    cluster="""
        The curve depends on the number of workers, although training is the same.
    """,
    apart={
        "sum-shown-as-mean": "the means of all replicas were added up",
        "tensorflow-loss-not-divided": "the loss itself is too large, not only what is shown",
    },
    references=(
        Reference(
            "Custom training with tf.distribute.Strategy: the training loop",
            "https://www.tensorflow.org/tutorials/distribute/custom_training",
        ),
    ),
    in_source=False,
)
