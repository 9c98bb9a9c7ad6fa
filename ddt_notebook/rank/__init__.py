"""Code that runs in the process of a rank: its shell, its recorders and its probes."""
