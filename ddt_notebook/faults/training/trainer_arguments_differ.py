"""Ranks train with other arguments of a library's Trainer."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

_SETUP = """
        import tempfile

        import torch
        from transformers import Trainer, TrainingArguments


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def forward(self, x):
                return {"loss": self.layer(x).square().mean()}


        rows = [{"x": torch.ones(4) * at} for at in range(64)]
"""
_BROKEN = """
        arguments = TrainingArguments(
            output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], save_strategy="no",
            disable_tqdm=True, per_device_train_batch_size=4, max_steps=6 if rank == 0 else 4,
        )
        trainer = Trainer(model=Net(), args=arguments, train_dataset=rows)
        trainer.train()
"""

CARD = FaultCard(
    id="trainer-arguments-differ",
    title="ranks train with other arguments of a library's Trainer",
    symptoms=("D.2.1", "D.1.1"),
    views=("stacks", "collectives"),
    needs=("transformers",),
    setup=_SETUP,
    sees="""
        Training stops near its end, or before an evaluation or a checkpoint: one rank waits for
        gradients, and the other one for a collective of the Trainer itself. The traceback names
        functions of the library only.
    """,
    why="""
        The arguments decide how many steps a Trainer makes and what comes between them. A value
        from the environment, from a clock or from this rank's share of the data can differ between
        ranks, and then they make other collectives.
    """,
    broken=_BROKEN,
    fixed=_BROKEN.replace("6 if rank == 0 else 4", "6"),
    proof="assert trainer.state.global_step == 6",
    expected=Expected(ranks=(0, 1), lines={0: 6, 1: 6}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give every rank the same arguments: compute them from numbers that all ranks share, "
            "or broadcast those of rank 0",
        ),
    ),
    cluster="""
        The job waits until the time-out of its collectives, and then reports an operation of the
        library's last gather on some ranks and of gradients on the others.
    """,
    apart={
        "uneven-iterations": "the arguments are alike, but ranks have other numbers of batches",
        "deepspeed-config-differs": "it is the configuration of an engine of DeepSpeed",
    },
    references=(
        Reference(
            "Arguments of the Trainer",
            "https://huggingface.co/docs/transformers/main_classes/trainer",
        ),
    ),
    in_source=False,
)
