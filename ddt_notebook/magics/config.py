"""Defaults that ``%config DDT`` shows and sets."""

from __future__ import annotations

from traitlets import Bool, Float, Int, Unicode
from traitlets.config import Configurable


class DDT(Configurable):
    """Defaults of the ddt magics; an option on the line of a magic overrides them."""

    ranks = Int(2, min=1, help="Number of ranks that %ddt_start starts.").tag(config=True)
    backend = Unicode("gloo", help="Backend of the process group.").tag(config=True)
    device = Unicode(
        None, allow_none=True, help="Device of the ranks; None: chosen by the session."
    ).tag(config=True)
    timeout = Float(
        None,
        allow_none=True,
        min=0.1,
        help="Longest wait for a rank in a collective, in seconds; None: as long as PyTorch waits.",
    ).tag(config=True)
    hang_after = Float(
        2.0,
        min=0.1,
        help="Seconds that ranks wait without progress before a hang is reported.",
    ).tag(config=True)
    memory = Unicode(None, allow_none=True, help='Memory limit for each rank, such as "512M".').tag(
        config=True
    )
    idle_minutes = Float(
        None,
        allow_none=True,
        min=0,
        help="Minutes without a cell after which the ranks stop to free memory, until the next "
        "cell; 0: never. None: never, but on a machine with 4 GB or less after 30 minutes, and "
        "after one minute if its memory is nearly full.",
    ).tag(config=True)
    colour = Bool(True, help="Colours in terminals; notebooks do not use it.").tag(config=True)
    widgets = Bool(
        True, help="Show buttons for %ddt_debug in notebooks; False: text and HTML only."
    ).tag(config=True)
