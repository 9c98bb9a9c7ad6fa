"""What a rank observes about itself while it runs.

The functions of torch that are recorded belong to the whole process, and so do the records: each
of `training`, `loaders`, `checkpoints` and `performance` has one, which the worker begins anew with
every cell. A rank's process has this other state: the simulated GPUs (`simulated`), the weights of
fingerprints (`fingerprints`), and the private names of torch that are missing
(`rank.torch_private`).
"""
