"""Training programs of TensorFlow and Keras for two workers, with places for a fault."""

from __future__ import annotations

HEAD = """
import json
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
"""

#: The data of all workers, 64 samples.
_DATA = """
features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
targets = tf.reduce_sum(features, 1, keepdims=True)
"""

CUSTOM_LOOP = (
    HEAD
    + """
# before the strategy
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""
    + _DATA
    + """
options = tf.data.Options()
# before the data
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(16).with_options(options)
distributed = strategy.experimental_distribute_dataset(dataset)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(16), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)
    accuracy = tf.keras.metrics.MeanSquaredError()


@tf.function
def train_step(batch):
    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            losses = tf.math.squared_difference(predicted, y)
            loss = tf.nn.compute_average_loss(losses[:, 0], global_batch_size=16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(y, predicted)
        return loss

    losses = strategy.run(replica_step, args=(batch,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


steps = 3
# before the loop
for epoch in range(2):
    iterator = iter(distributed)
    for step in range(steps):
        # in a step
        loss = train_step(next(iterator))
    print(epoch, float(loss), float(accuracy.result()))
    accuracy.reset_state()
# at the end
"""
)

FIT = (
    HEAD
    + """
# before the strategy
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""
    + _DATA
    + """
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).shuffle(64, seed=1).batch(16)
steps = None
# before the model
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu")])
    model.add(tf.keras.layers.Dense(1))
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
# before training
model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0)
# at the end
"""
)

_BODY = FIT.removeprefix(HEAD).replace("\n", "\n    ")
#: Its variables are gone when the program has ended.
IN_A_FUNCTION = f"{HEAD}\ndef main():\n    {_BODY}\n\nmain()\nimport gc\ngc.collect()\n"

#: As the tutorial "Save and load a model using a distribution strategy" has it for workers.
SAVES = FIT.replace(
    "# at the end",
    """
import tempfile

folder = os.path.join(tempfile.mkdtemp(), "model" if rank == 0 else "workers")
model.save(folder)
checkpoint = tf.train.Checkpoint(model=model)
tf.train.CheckpointManager(checkpoint, os.path.join(folder, "steps"), max_to_keep=1).save()
print(os.path.exists(os.path.join(folder, "saved_model.pb")))
""",
)

#: Each worker makes its own share of the data; the last batches are uneven.
FROM_FUNCTION = FIT.replace(
    "# before the model",
    """
def dataset_of(context):
    data = tf.data.Dataset.from_tensor_slices((features[:61], targets[:61]))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id).repeat()
    return data.batch(context.get_per_replica_batch_size(16))


dataset, steps = strategy.distribute_datasets_from_function(dataset_of), 5
""",
)

EVALUATES = FIT.replace(
    "# at the end",
    """
print(model.evaluate(dataset, verbose=0))
gathered = strategy.gather(strategy.run(lambda: tf.ones([2, 1])), axis=0)
print(gathered.shape, model.predict(features, batch_size=16, verbose=0).shape)
""",
)

#: Several replicas in one worker, on logical devices; no worker waits for another.
MIRRORED = (
    HEAD
    + """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def add():
    strategy.run(lambda: total.assign_add(tf.ones([])))


add()
print(float(total.read_value()))
"""
)
