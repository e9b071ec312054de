"""Each import contract fails on a sample that breaks it: a guard that nobody has seen failing does not count."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("contracts", "services", "cli", "deploy")

SAMPLES = {
    "Dependencies point inwards": ("services/embeddings/domain/chunk.py", "services.embeddings.application.ports"),
    "Services never import each other": ("services/search/bootstrap.py", "services.files.domain"),
    "Contracts and the chassis import no service": ("services/chassis/settings.py", "services.search.domain"),
    "Contracts import nothing of the project": ("contracts/events/topics.py", "services.chassis.kernel.errors"),
    "The command line talks to the services as any client does": ("cli/main.py", "services.chassis.settings"),
    "The kernel is the standard library": ("services/chassis/kernel/scope.py", "pydantic"),
    "Domains are the standard library and the kernel": ("services/files/domain/__init__.py", "pydantic"),
    "Use cases know ports, not drivers": ("services/embeddings/application/embed_file.py", "asyncpg"),
    "Only bootstrap builds adapters": (
        "services/embeddings/entrypoints/worker.py",
        "services.embeddings.adapters.storage",
    ),
    "PyMuPDF is known to one module": ("services/embeddings/adapters/storage.py", "pymupdf"),
    "google-genai is known to one module": ("services/embeddings/bootstrap.py", "google.genai"),
    "asyncpg stays in adapters/postgres and the chassis": ("services/embeddings/adapters/storage.py", "asyncpg"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code that samples may be written into."""
    root = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", root)
    return root


def lint(root: Path) -> str:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout


def test_every_contract_has_a_sample_that_breaks_it() -> None:
    lines = (ROOT / ".importlinter").read_text().splitlines()
    names = [line.removeprefix("name = ") for line in lines if line.startswith("name")]
    assert sorted(names) == sorted(SAMPLES)


def test_the_code_keeps_every_contract(tree: Path) -> None:
    assert "0 broken" in lint(tree)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_breaks_the_contract(tree: Path, name: str) -> None:
    path, imported = SAMPLES[name]
    file = tree / path
    original = file.read_text()
    file.write_text(f"{original}\nimport {imported}\n")
    try:
        assert f"{name} BROKEN" in lint(tree)
    finally:
        file.write_text(original)
