"""Hugging Face Accelerate, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: The call that decides how a loop is divided; a rank records the arguments, as JSON.
MADE = "Accelerator"
#: Arguments that decide in which steps ranks exchange gradients, and how many batches they get.
ARGUMENTS = ("gradient_accumulation_steps", "split_batches", "dispatch_batches", "even_batches")
#: How many processes train together, as the library counts them.
PROCESSES = "num_processes"

FRAMEWORK = Description(
    name="accelerate",
    title="Accelerate",
    in_ranks="ddt_notebook.rank.frameworks.accelerate:Accelerate",
    settings_calls=(MADE,),
    settings_of="training",
    causes=dict.fromkeys(ARGUMENTS, "trainer-arguments-differ"),
)
