"""What runs in a training process: its shell, its recorders and its probes."""
