"""The Trainer of Hugging Face's transformers, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: The call that trains; a rank records the arguments, as JSON.
TRAIN = "Trainer.train"
#: Arguments that decide how many steps there are, and what comes between them.
ARGUMENTS = (
    *("max_steps", "num_train_epochs", "gradient_accumulation_steps", "eval_strategy"),
    *("eval_steps", "save_strategy", "save_steps", "logging_strategy", "logging_steps"),
    "per_device_train_batch_size",
)

#: Flags with which a callback ends a loop; a rank records when one is set.
FLAGS = ("should_training_stop", "should_epoch_stop")
STOPS = {name: f"TrainerControl.{name}" for name in FLAGS}

FRAMEWORK = Description(
    name="transformers",
    title="transformers",
    in_ranks="ddt_notebook.rank.frameworks.transformers:Transformers",
    settings_calls=(TRAIN,),
    settings_of="training",
    causes=dict.fromkeys(ARGUMENTS, "trainer-arguments-differ"),
    stops=frozenset(STOPS.values()),
    callbacks=(("transformers.trainer_callback", "CallbackHandler.call_event"),),
)
