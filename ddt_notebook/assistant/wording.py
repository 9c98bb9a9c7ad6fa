"""The English of what was observed."""

from __future__ import annotations

from ..diagnosis.wording import rendered
from ..model import Fact

#: A template for each kind of observation, as in `diagnosis.wording`.
OBSERVATIONS = {
    # of the last run
    "ended-well": "the last run ended, and no rank failed",
    "group-formed": "the session formed the process group",
    "raised": "{ranks} raised {error}",
    "setup-unfinished": "init_process_group did not return",
    "steps-taken": "the optimizers took steps in the last run",
    "steps-before-failure": "the optimizers had taken up to {steps:step}",
    "killed": "{ranks} was ended by {ending}",
    "hung": "the last run hung",
    "finding": "{symptom}: {title}",
    "unknown-error": "the error “{message}” is not a known one",
    # of a test
    "test-not-started": "the test could not start: {message}",
    "import-failed": "importing torch fails on this machine: {message}",
    "group-works": "{processes} processes formed a group ({backend}) and reduced a number",
    "torch-and-group-work": (
        "torch can be imported, and {processes} processes formed a group ({backend}) and reduced a "
        "number"
    ),
    "group-timed-out": "{processes} processes did not form a group ({backend}) within the limit",
    "group-failed": "{processes} processes could not form a group ({backend}): {message}",
    # of the last cell, run again
    "still-running": "the cell was still running at the time limit, or it was interrupted",
    "needs-variables": "the cell needs variables that only the session has",
    "ran-well": "in {runs:run} the cell ended, and no rank failed",
    "failed-without-answer": "the cell failed again, but that does not answer the question",
    "nothing-found": "nothing was found",
    "fails-alone": "one rank fails as well: {ending}",
    "works-alone": "one rank finishes the cell",
    "fails-otherwise-alone": "one rank fails in another way: {ending}",
}


def sentence(seen: Fact) -> str:
    """An observation in one line."""
    return rendered(OBSERVATIONS[seen.kind], seen)
