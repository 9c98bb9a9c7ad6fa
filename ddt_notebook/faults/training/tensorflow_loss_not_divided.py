"""A loss of TensorFlow that is a mean over each worker's own batch."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-loss-not-divided",
    title="the loss is a mean over each worker's batch, and the strategy sums the gradients",
    symptoms=("D.2.4", "D.2.5"),
    options={"framework": "tensorflow"},
    sees="""
        Training runs, and the workers' variables agree. With more workers training becomes
        unstable, and a learning rate that worked on one worker is too large.
    """,
    why="""
        A strategy sums the gradients of all replicas. tf.reduce_mean divides the loss by the size
        of the worker's own batch, so the sum is as many times too large as there are replicas.
        Keras divides by itself in fit; a training loop of your own has to do so, too. Adam hides
        most of it, since it scales gradients anyway; clipping and weight decay do not. A penalty of
        the variables that each replica adds counts as often as there are replicas, too.
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
                    loss = tf.reduce_mean(losses)
                found = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(found, model.trainable_variables))

            strategy.run(step, args=(batch,))


        for batch in strategy.experimental_distribute_dataset(data):
            train_step(batch)
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

            strategy.run(step, args=(batch,))


        for batch in strategy.experimental_distribute_dataset(data):
            train_step(batch)
    """,
    proof="""
        assert int(optimizer.iterations.numpy()) == 4
    """,
    expected=Expected(ranks=(0, 1), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "divide the sum of the losses by the size of the global batch: "
            "tf.nn.compute_average_loss(losses, global_batch_size=…)",
        ),
        Advice(
            "fix behavior logic",
            "divide the mean by strategy.num_replicas_in_sync, if all batches have one size",
        ),
        Advice(
            "fix behavior logic",
            "divide penalties of the variables, too: "
            "tf.nn.scale_regularization_loss(tf.add_n(model.losses))",
        ),
    ),
    cluster="""
        Nothing is logged. A job that ran on one worker diverges on eight.
    """,
    apart={
        "gradients-not-divided": "ranks of torch sum gradients by hand and do not divide them",
        "tensorflow-batches-uneven": "the workers read batches of different sizes",
    },
    references=(
        Reference(
            "Custom training with tf.distribute.Strategy: define the loss function",
            "https://www.tensorflow.org/tutorials/distribute/custom_training",
        ),
    ),
    in_source=False,
)
