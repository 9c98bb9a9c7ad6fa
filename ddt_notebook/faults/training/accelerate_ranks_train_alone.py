"""Accelerate takes each rank on CPUs for the only process."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

_TRAINS = """
        torch.manual_seed(0)
        arguments = TrainingArguments(
            output_dir=tempfile.mkdtemp(), report_to=[], save_strategy="no",
            disable_tqdm=True, per_device_train_batch_size=4, max_steps=4,
        )
        trainer = Trainer(model=Net(), args=arguments, train_dataset=rows)
        trainer.train()
"""

CARD = FaultCard(
    id="accelerate-ranks-train-alone",
    title="Accelerate or the Trainer takes each rank without a GPU for the only process",
    symptoms=("D.2.2",),
    views=("partition",),
    needs=("transformers",),
    setup="""
        import os
        import tempfile

        import torch
        from transformers import Trainer, TrainingArguments

        os.environ["ACCELERATE_USE_CPU"] = "false"  # as torchrun leaves it


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def forward(self, x):
                return {"loss": self.layer(x).square().mean()}


        rows = [{"x": torch.ones(4) * at} for at in range(64)]
    """,
    sees="""
        Every process prints the loss and each step, and all print the same. More processes do not
        make an epoch shorter. The Trainer warns that a process group is initialized, but that its
        parallel_mode is not DISTRIBUTED.
    """,
    why="""
        Accelerate looks for GPUs. If there is none, it connects the processes of a launcher only
        if it is asked to train on the CPU. Otherwise it counts one process, wraps no model and
        divides no data. The Trainer rests on Accelerate.
    """,
    broken=_TRAINS,
    fixed=_TRAINS.replace("report_to=[]", "use_cpu=True, report_to=[]"),
    proof="assert trainer.args.world_size == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "ask for the CPU: Accelerator(cpu=True), TrainingArguments(use_cpu=True), or "
            "ACCELERATE_USE_CPU=true in the environment; an Accelerator that the process has made "
            "already keeps its count until the process ends (%ddt_restart)",
        ),
        Advice(
            "fix device assignment",
            "if there should be GPUs, find out why torch.cuda.is_available() is false",
        ),
    ),
    cluster="""
        On a machine with GPUs the same program trains together, so it appears when a job is tried
        on CPUs first. Each process writes its own checkpoint into the same folder.
    """,
    apart={
        "model-not-wrapped": "no library wraps the model, and the program has to",
        "group-never-formed": "there is no process group at all",
    },
    references=(
        Reference(
            "Accelerate: the Accelerator and its argument cpu",
            "https://huggingface.co/docs/accelerate/package_reference/accelerator",
        ),
    ),
    in_source=False,
)
