"""Ranks of Megatron-core that divide the model in different ways."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-sizes-differ",
    title="ranks give Megatron-core different sizes of its parallel groups",
    symptoms=("B.2",),
    views=("stacks",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        `initialize_model_parallel()` does not return: all ranks wait in `new_group`, and no model
        has been made yet.
    """,
    why="""
        From the sizes and its own rank, each rank computes the members of all groups of the mesh,
        and makes them one after the other. With another size, a rank makes other groups in another
        order, so that the ranks wait for each other. A size that a rank computes from its host,
        such as the number of its GPUs, or reads from an environment that is not the same on all
        hosts, does this.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        gpus_of_host = [2, 1]  # as counted on each host
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=gpus_of_host[rank]
        )
        print(parallel_state.get_tensor_model_parallel_world_size())
    """,
    fixed="""
        parallel_state.destroy_model_parallel()
        gpus_of_host = [2, 1]  # as counted on each host
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=min(gpus_of_host)
        )
        print(parallel_state.get_tensor_model_parallel_world_size())
    """,
    proof="""
        assert parallel_state.get_tensor_model_parallel_world_size() == 1
        assert parallel_state.get_data_parallel_world_size() == 2
    """,
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give all ranks the same sizes: pass them as arguments of the job, and not by what "
            "each host has",
        ),
        Advice(
            "fix behavior logic",
            "if a rank computes a size, let rank 0 broadcast it before: "
            "`dist.broadcast_object_list(sizes, src=0)`",
        ),
    ),
    cluster="""
        The store's time limit ends the job after 10 minutes or more with `DistStoreError` or
        `wait timeout`, and names a key of the store instead of a size.
    """,
    apart={
        "new-group-on-some-ranks": "the program makes its groups itself",
    },
    references=(
        Reference(
            "Megatron Core: parallel_state package",
            "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/parallel_state.html",
        ),
        Reference(
            "Megatron-LM: a simple training loop with Megatron Core",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/examples/run_simple_mcore_train_loop.py",
        ),
    ),
    in_source=False,
)
