"""``cauce sweep``: have the index compared with its sources, and repaired."""

from __future__ import annotations

from cli.client import CauceClient
from cli.command import AsJson, DataDir, Url, run
from cli.render import Screen


def sweep(url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Mark what is missing, stale, orphaned or stuck in the index, and print how many of each."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        screen.file(await client.sweep())
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)
