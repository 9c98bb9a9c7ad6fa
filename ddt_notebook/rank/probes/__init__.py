"""What a rank observes about itself while it runs.

The recorded functions of torch belong to the whole process, and so do the records: `training`,
`loaders`, `checkpoints` and `performance` have one each, which the worker restarts with every cell.
A rank's process has this other state: the simulated GPUs (`simulated`), the weights of
fingerprints (`fingerprints`), and the private names of torch that are missing
(`rank.torch_private`).
"""
