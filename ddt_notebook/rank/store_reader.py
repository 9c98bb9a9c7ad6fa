"""Reads what a job's TCPStore shows: ``python -m ddt_notebook.rank.store_reader HOST PORT``.

It runs in a process of its own, since torch prints to stderr and may end it. It prints JSON: the
ranks that joined the default group, and the addresses of the ranks' debug servers. It sets no key.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta

#: gloo's and the default store's keys of a rank that joined.
_JOINED = re.compile(r"default_pg/\d+//\w+//\d+/(\d{1,6})$")
_SERVER = re.compile(r"debug_server/rank(\d{1,6})$")
#: Further keys are not read, and a longer value is not an address.
_MOST_KEYS, _LONGEST = 200_000, 300
_LIMIT_S = 3.0


def main(host: str, port: int) -> None:
    """Print what the store at this address shows."""
    from torch.distributed import TCPStore

    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_LIMIT_S))
    keys = store.list_keys()[:_MOST_KEYS] if hasattr(store, "list_keys") else []
    servers = {}
    for key in keys:
        if found := _SERVER.search(key):
            address = store.get(key)
            if len(address) <= _LONGEST:
                servers[int(found[1])] = address.decode("ascii", "replace")
    joined = sorted({int(found[1]) for key in keys if (found := _JOINED.search(key))})
    print(json.dumps({"joined": joined, "servers": servers}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
