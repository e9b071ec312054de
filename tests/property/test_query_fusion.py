"""Lists of several queries become one order, whatever the lists are."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from services.search.domain.fusion import fuse_lists

LIST = st.lists(st.integers(0, 60), unique=True, max_size=50)


@given(first=LIST.filter(bool), others=st.lists(LIST, max_size=7))
@example(first=[0], others=[[1, other] for other in range(2, 8)])
def test_nothing_is_lost_and_nothing_that_the_first_list_lacks_comes_before_its_best(
    first: list[int], others: list[list[int]]
) -> None:
    fused = list(fuse_lists([first, *others]))

    assert sorted(fused) == sorted({key for keys in (first, *others) for key in keys})
    strangers = [place for place, key in enumerate(fused) if key not in first]
    assert not strangers or fused.index(first[0]) < strangers[0]


@given(keys=LIST, count=st.integers(0, 5))
def test_lists_that_agree_keep_their_order(keys: list[int], count: int) -> None:
    assert list(fuse_lists([keys] * (count + 1))) == keys


@given(first=LIST, others=st.lists(LIST, min_size=2, max_size=6), data=st.data())
def test_the_order_of_the_other_queries_changes_no_score(
    first: list[int], others: list[list[int]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(others))

    scores, again = fuse_lists([first, *others]), fuse_lists([first, *shuffled])

    assert {key: round(score, 9) for key, score in scores.items()} == {
        key: round(score, 9) for key, score in again.items()
    }
