"""Workers of TensorFlow with different numbers of steps."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-steps-differ",
    title="a worker of TensorFlow makes fewer steps than the others",
    symptoms=("D.2.1", "D.1.1", "C.7"),
    views=("stacks", "collectives"),
    options={"framework": "tensorflow"},
    sees="""
        Training stands still after some steps: one worker has ended, the others wait in a step
        without a limit. If the worker that has ended goes on to an evaluation or a metric,
        TensorFlow raises an error about other shapes or types instead.
    """,
    why="""
        Each step of a MultiWorkerMirroredStrategy sums gradients over all workers. A worker that
        makes fewer steps leaves the others waiting for its part, or gives them the numbers of its
        next operation.
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
            weight = tf.Variable(1.0)


        @tf.function
        def train_step(x):
            def replica_step(x):
                gradient = tf.distribute.get_replica_context().all_reduce("mean", weight * x)
                weight.assign_sub(0.1 * gradient)

            strategy.run(replica_step, args=(x,))


        samples = tf.random.stateless_uniform([5 - rank], seed=(1, 2))
        for x in samples:
            train_step(x)
    """,
    fixed="""
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            weight = tf.Variable(1.0)


        @tf.function
        def train_step(x):
            def replica_step(x):
                gradient = tf.distribute.get_replica_context().all_reduce("mean", weight * x)
                weight.assign_sub(0.1 * gradient)

            strategy.run(replica_step, args=(x,))


        samples = tf.random.stateless_uniform([5 - rank], seed=(1, 2))
        for x in samples[:4]:
            train_step(x)
    """,
    proof="""
        assert float(weight.numpy()) != 1.0
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 17, 1: 16}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let every worker make the same number of steps: repeat() the data and give "
            "steps_per_epoch, or let the strategy distribute one data set",
        ),
        Advice(
            "fix behavior logic",
            "compute the number of steps from what all workers know, not from a worker's own files",
        ),
    ),
    cluster="""
        The workers' logs end at the same step, one of them with the end of its data. With
        CommunicationOptions(timeout_seconds=…), the others raise DeadlineExceededError: Collective
        has timed out during execution.
    """,
    apart={
        "uneven-iterations": "ranks of torch make different numbers of steps",
        "tensorflow-chief-alone": "only the chief calls something in which all workers take part",
    },
    references=(
        Reference(
            "Multi-worker training with Keras",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        ),
    ),
    in_source=False,
)
