"""Keras on two workers: each takes its number of steps from its own file."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = strategy.cluster_resolver.task_id
features = tf.random.stateless_uniform([64, 8], seed=(1, 2))
targets = tf.reduce_sum(features, 1, keepdims=True)
data = tf.data.Dataset.from_tensor_slices((features, targets)).repeat().batch(16)
samples = 64 if worker == 0 else 48  # in the worker's own file

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
model.fit(data, epochs=2, steps_per_epoch=samples // 16, verbose=0)
