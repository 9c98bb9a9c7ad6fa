"""The Jupyter server's part of the JupyterLab extension, for what a front end cannot do alone.

It opens a snapshot as a page, without a kernel, and copies the project's notebooks to the user's
folder. It reads and writes only through the server's contents manager, for the user who is logged
in.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import ensure_async, url_path_join
from tornado import web

from .symptoms import lessons

#: Where the notebooks are copied to, below the user's current folder.
FOLDER = "ddt-notebook"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    base = url_path_join(server.web_app.settings["base_url"], "ddt-notebook")
    server.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "snapshot"), SnapshotHandler),
            (url_path_join(base, "lessons"), LessonsHandler),
        ],
    )


class SnapshotHandler(APIHandler):
    """Renders a ``.ddt.json`` file."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Render the file at ``?path=``, as the contents manager names it."""
        path = self.get_query_argument("path")
        found = await ensure_async(self.contents_manager.get(path, type="file", format="text"))
        try:
            # In a thread, so that a large file does not delay the other notebooks.
            parts, data = await asyncio.to_thread(render, found["content"])
        except ValueError as error:
            raise web.HTTPError(400, reason=" ".join(str(error).split())[:200]) from error
        shown = [{"title": title, "html": page} for title, page in parts]
        self.finish({"parts": shown, "viewer": data})


class LessonsHandler(APIHandler):
    """Lists the project's notebooks, and copies them."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return all notebooks, by path and title."""
        known = lessons.notebooks()
        self.finish({"lessons": [{"path": p, "title": title} for p, title in known.items()]})

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Copy all notebooks, for ``{"path": "00-quickstart.ipynb", "folder": ""}``.

        A notebook alone would lack its pictures, the runs that it loads, and what it links to. A
        file that exists is left as it is.
        """
        asked = self.get_json_body() or {}
        wanted = str(asked.get("path", ""))
        if wanted not in lessons.notebooks():
            raise web.HTTPError(404, reason="there is no such notebook")
        folder = f"{asked.get('folder', '')}".strip("/")
        target = f"{folder}/{FOLDER}".strip("/")
        for name in lessons.notebooks_and_files():
            await self._copy(name, target)
        self.finish({"path": f"{target}/{wanted}"})

    async def _copy(self, name: str, target: str) -> None:
        """Save a notebook, or a file that one needs, below the folder ``target``."""
        contents = self.contents_manager
        goal = f"{target}/{name}"
        if await ensure_async(contents.file_exists(goal)):
            return
        *folders, _ = goal.split("/")
        for depth in range(1, len(folders) + 1):
            parent = "/".join(folders[:depth])
            if not await ensure_async(contents.dir_exists(parent)):
                await ensure_async(contents.save({"type": "directory"}, parent))
        if name.endswith(".ipynb"):
            text = lessons.for_learners(name)
        else:
            text = (lessons.notebooks_folder() / name).read_text(encoding="utf-8")
        # as text: a notebook would be validated and copied as a checkpoint, which takes long
        await ensure_async(contents.save({"type": "file", "format": "text", "content": text}, goal))
        await asyncio.sleep(0)  # other notebooks' messages go between two files


def render(text: str) -> tuple[list[tuple[str, str]], str]:
    """Render the diagnosis of a snapshot and every view that has recorded data.

    Returns
    -------
    list of (title, HTML)
        The diagnosis comes first and has no title; each view is folded below its title. The page
        can draw the parts one by one.
    str
        The data of the interactive timeline; empty if the run has no times.

    Raises
    ------
    ValueError
        If the text is not a snapshot.
    """
    from .model import Snapshot, codec
    from .views import exported_page, viewer_data

    snapshot = Snapshot.from_json(codec.parse(text))
    return exported_page.parts(snapshot), viewer_data.encode(snapshot)
