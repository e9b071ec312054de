"""What is computed from answers: measures, intervals, differences, thresholds, recall and filters."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from cli.errors import CommandError
from cli.measuring.calibration import Scores, check_translations, propose, translations
from cli.measuring.datasets import Dataset, Document, JudgedQuestion
from cli.measuring.evaluation import COMPARED, read_baseline, run_specs
from cli.measuring.measures import compare, interval, measure
from cli.measuring.recall import IndexedFile, narrow, recall


def test_measures_are_those_of_the_field() -> None:
    relevant = [{"a": 1}, {"a": 1, "b": 1}, {"a": 1}]
    values = measure(relevant, [["x", "a"], ["a", "x", "b"], []])
    assert values["R@1"].tolist() == [0, 0.5, 0]
    assert values["R@3"].tolist() == [1, 1, 0]
    assert values["MRR@10"].tolist() == [0.5, 1, 0]
    ideal = 1 + 1 / np.log2(3)
    assert values["nDCG@10"] == pytest.approx([1 / np.log2(3), (1 + 1 / 2) / ideal, 0])


def test_an_interval_holds_the_mean_and_repeats_with_its_seed() -> None:
    values = np.random.default_rng(3).random(200)
    low, high = interval(values, 1)
    assert low < values.mean() < high
    assert interval(values, 1) == (low, high) != interval(values, 2)
    assert interval(np.ones(10), 1) == (1, 1)


def test_a_difference_that_chance_makes_often_is_told_from_one_that_it_does_not() -> None:
    rng = np.random.default_rng(5)
    values = rng.random(300)
    same = compare(values, values, 1)
    assert (same.value, same.interval, same.p) == (0, (0, 0), 1)
    noise = compare(values, values + rng.normal(0, 0.1, 300), 1)
    better = compare(values + 0.1 + rng.normal(0, 0.1, 300), values, 1)
    assert noise.p > 0.05
    assert better.p < 0.001
    assert better.interval[0] > 0


def test_every_mode_runs_by_itself_and_with_each_technique() -> None:
    specs = run_specs(["hybrid", "semantic"], ["hyde", "multi-query+rerank"], ['languages=["es"]', "exact=true"])
    assert [spec.name for spec in specs] == [
        *("hybrid", "hybrid hyde", "hybrid multi-query+rerank"),
        *("semantic", "semantic hyde", "semantic multi-query+rerank"),
    ]
    question = JudgedQuestion("q", "¿?", {"a": 1})
    common = {"query": "¿?", "topN": 10, "languages": ["es"], "exact": True}
    assert specs[2].body(question, 10) == {**common, "mode": "hybrid", "multiQuery": 3, "rerank": 30}


def test_rewriting_takes_the_history_of_the_question() -> None:
    (_, spec) = run_specs(["semantic"], ["rewrite"], [])
    history = ({"role": "user", "text": "Háblame del plan"},)
    assert spec.body(JudgedQuestion("q", "¿y eso?", {}, history), 10)["rewrite"] == {"history": list(history)}


@pytest.mark.parametrize(
    ("modes", "techniques", "parameters"),
    [(["magic"], [], []), ([], ["magic"], []), ([], [], ["mode=x"]), ([], [], ["exact"])],
)
def test_a_run_that_makes_no_sense_is_refused(modes: list[str], techniques: list[str], parameters: list[str]) -> None:
    with pytest.raises(CommandError, match="INVALID_OPTION"):
        run_specs(modes, techniques, parameters)


def test_a_baseline_is_put_in_the_order_of_the_questions(tmp_path: Path) -> None:
    questions = tuple(JudgedQuestion(id_, "¿?", {"d": 1}) for id_ in ("q2", "q1"))
    dataset = Dataset("set", (Document("d", "x"),), questions)
    path = tmp_path / "before.json"
    values = {name: [1.0, 0.0] for name in COMPARED}
    path.write_text(json.dumps({"questions": ["q1", "q2"], "values": {"hybrid": values}}))
    assert read_baseline(path, dataset)["hybrid"]["R@1"].tolist() == [0, 1]
    for content in ("{}", "[]", "x", '{"questions": ["q1"], "values": {}}'):
        path.write_text(content)
        with pytest.raises(CommandError, match="BASELINE_INVALID"):
            read_baseline(path, dataset)


def test_the_proposed_threshold_is_the_lowest_with_the_precision() -> None:
    scores = Scores("s", relevant=[0.95, 0.9, 0.8, 0.6], irrelevant=[0.85, 0.7, 0.65, 0.5])
    assert propose(scores, 1.0) == {"min_score": 0.9, "precision": 1.0, "kept": 0.5}
    assert propose(scores, 0.75) == {"min_score": 0.8, "precision": 0.75, "kept": 0.75}
    assert propose(scores, 0.5)["min_score"] == 0.5
    close = Scores(relevant=[0.83449, 0.9], irrelevant=[0.83441])
    assert propose(close, 1.0) == {"min_score": 0.9, "precision": 1.0, "kept": 0.5}


def test_a_precision_that_no_threshold_brings_is_not_pretended() -> None:
    scores = Scores("s", relevant=[0.8], irrelevant=[0.9, 0.85, 0.1])
    assert propose(scores, 0.9) == {"min_score": None, "precision": 0.3333, "kept": 1.0}
    equal = Scores("s", relevant=[0.8], irrelevant=[0.8])
    assert propose(equal, 0.9) == {"min_score": None, "precision": 0.5, "kept": 1.0}


def test_a_space_that_does_not_bring_translations_together_is_warned_of() -> None:
    good = Scores("s", [0.9] * 40, [0.7] * 360, questions=40, first_right=39)
    bad = Scores("s", [0.9] * 10, [0.8] * 390, questions=40, first_right=10)
    assert check_translations(good)["warning"] is None
    assert "25%" in check_translations(bad)["warning"]


def test_the_sentences_that_come_along_have_each_a_translation() -> None:
    pairs = translations()
    asked = [unit for question in pairs.questions for unit in question.relevant]
    assert asked == list(pairs.documents[0].unit_ids)


def test_recall_counts_any_of_equally_near_ones() -> None:
    assert recall([0.9, 0.8], [0.9, 0.8]) == 1
    assert recall([0.9, 0.7], [0.9, 0.8]) == 0.5
    assert recall([0.9, 0.8, 0.8], [0.9, 0.8]) == 1
    assert recall([], []) == 1


@pytest.mark.parametrize("count", [400, 5_000])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.01])
def test_a_filter_lets_about_the_wanted_share_pass(count: int, share: float) -> None:
    rng = random.Random(2)
    files = [
        IndexedFile(
            number, rng.randint(1, 9), f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        )
        for number in range(count)
    ]
    narrowing = narrow(files, share, rng)
    assert narrowing.share == pytest.approx(share, rel=0.15)
    if "fileIds" in narrowing.parameters:
        assert len(narrowing.parameters["fileIds"]) <= 1_000
        passing = set(narrowing.parameters["fileIds"])
        chunks = sum(file.chunks for file in files if file.file_id in passing)
    else:
        start, end = narrowing.parameters.get("createdFrom", ""), narrowing.parameters.get("createdBefore", "9")
        chunks = sum(file.chunks for file in files if start <= file.created_at < end)
    assert chunks / sum(file.chunks for file in files) == pytest.approx(narrowing.share)
