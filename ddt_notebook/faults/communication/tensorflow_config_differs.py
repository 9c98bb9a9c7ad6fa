"""Workers whose TF_CONFIG do not describe one cluster."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensorflow-config-differs",
    title="the workers' TF_CONFIG do not fit together",
    symptoms=("B.2",),
    views=(),
    options={"framework": "tensorflow"},
    sees="""
        MultiWorkerMirroredStrategy() never returns on any worker. Nothing is printed, also after
        many minutes.
    """,
    why="""
        Each worker waits in the constructor until all tasks that its own TF_CONFIG lists have
        connected. A worker that expects more tasks than there are, waits at another address, or has
        the index of another one, is never complete.
    """,
    setup="""
        import json
        import os

        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf
    """,
    broken="""
        config = json.loads(os.environ["TF_CONFIG"])
        if rank == 1:
            config["cluster"]["worker"].append("127.0.0.1:20000")
        os.environ["TF_CONFIG"] = json.dumps(config)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            weight = tf.Variable(1.0)
        print(strategy.num_replicas_in_sync)
    """,
    fixed="""
        config = json.loads(os.environ["TF_CONFIG"])
        assert len(config["cluster"]["worker"]) == world_size
        os.environ["TF_CONFIG"] = json.dumps(config)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            weight = tf.Variable(1.0)
        print(strategy.num_replicas_in_sync)
    """,
    proof="""
        assert strategy.num_replicas_in_sync == world_size
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "write the list of workers once, and give every worker the same list; only the task's "
            "index differs, and each index from 0 on occurs once",
        ),
        Advice(
            "fix communication configuration",
            "start as many workers as the list has, and let each make the strategy",
        ),
    ),
    cluster="""
        The jobs start and no log grows. The workers use no processor time. With a wrong address,
        the chief may print that it waits for the coordination service.
    """,
    apart={
        "world-size-differs": "ranks of torch were given different world sizes",
        "rendezvous-differs": "ranks of torch wait at different addresses",
    },
    references=(
        Reference(
            "Multi-worker training with Keras",
            "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
        ),
    ),
    in_source=False,
)
