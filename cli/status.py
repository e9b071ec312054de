"""``cauce status``, ``cauce delete`` and ``cauce retry``: how files stand, and what can be done about it."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client import CauceClient
from cli.command import AsJson, DataDir, FileId, Url, run
from cli.ingest import Timeout, Wait, check_timeout, deadline_after, wait_for
from cli.render import Screen


def status(
    file_id: Annotated[int | None, typer.Argument(help="The file's id; all files without it.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how one file stands, or all, newest first."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        if file_id is not None:
            screen.file(await client.file(file_id))
        else:
            screen.listing([file async for file in client.files()])
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def delete(file_id: FileId, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a file, its passages and its bytes."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        await client.delete(file_id)
        screen.confirm({"file_id": file_id, "deleted": True}, f"deleted file {file_id}")
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def retry(
    file_id: FileId,
    *,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Process a file again."""
    check_timeout(timeout, wait=wait)

    async def work(client: CauceClient, screen: Screen) -> bool:
        file = await client.retry(file_id)
        if wait:
            with screen.progress() as progress, progress.file(file["name"]) as bar:
                file = await wait_for(client, file, deadline_after(timeout), bar.show)
        screen.line(file)
        return not wait or file["error_code"] is None

    run(work, url=url, data_dir=data_dir, as_json=as_json)
