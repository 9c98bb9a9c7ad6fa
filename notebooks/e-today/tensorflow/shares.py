"""Keras on two workers: each cuts its own share of the data."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
targets = tf.reduce_sum(features, 1, keepdims=True)


def _share_of(context):
    data = tf.data.Dataset.from_tensor_slices((features, targets))
    data = data.skip(24 * context.input_pipeline_id).take(40)
    return data.repeat().batch(context.get_per_replica_batch_size(16))


data = strategy.distribute_datasets_from_function(_share_of)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
model.fit(data, epochs=2, steps_per_epoch=4, verbose=0)
