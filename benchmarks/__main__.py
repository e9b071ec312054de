"""``python -m benchmarks``: every measurement in turn, each with its defaults, each ending in one line of JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HELPERS = {"__init__", "__main__"}


def main() -> int:
    """Run them all; the exit status is not 0 when one failed."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)
    failed = []
    for name in names:
        print(f"-- {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
