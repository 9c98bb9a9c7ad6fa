"""Lightning's Trainer, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: The call that trains; a rank records the arguments, as JSON.
FIT = "Trainer.fit"
#: The end of an epoch, where what was logged is averaged over the ranks, and what it is.
LOG, LOGGED = "LightningModule.log", "names in self.log(…, sync_dist=True)"
#: The first call of each name with ``sync_dist=True``.
LOGGED_AT = "LightningModule.log(sync_dist=True)"
#: Each change of ``sync_dist`` in calls for one name: whether the rank averages it now.
SYNC, SYNCED = "LightningModule.log(sync_dist)", "sync_dist of"
#: Arguments that decide how many steps there are, and what comes between them.
ARGUMENTS = (
    *("max_steps", "max_epochs", "limit_train_batches", "limit_val_batches"),
    *("accumulate_grad_batches", "val_check_interval", "check_val_every_n_epoch"),
)
#: By its older name, it is another package.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")

FRAMEWORK = Description(
    name="lightning",
    title="Lightning",
    in_ranks="ddt_notebook.rank.frameworks.lightning:Lightning",
    settings_calls=(FIT, LOG, SYNC),
    settings_of="training",
    causes={
        **dict.fromkeys(ARGUMENTS, "trainer-arguments-differ"),
        "names": "rank-skips-collective",
        "sync_dist": "rank-skips-collective",
    },
    given_at={LOGGED: LOGGED_AT},
    callbacks=tuple((f"{name}.trainer.call", "_call_callback_hooks") for name in _PACKAGES),
    first_of_host=dict.fromkeys(
        ("LightningDataModule", "LightningModule"), frozenset({"prepare_data"})
    ),
    hooks=tuple((f"{name}.trainer.call", "_call_lightning_module_hook") for name in _PACKAGES),
)
