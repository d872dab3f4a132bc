from hypothesis import given
from hypothesis import strategies as st

from hawk.core.traffic.shares import Waves, fractions, of_window, places, portions, steady

REPLICAS = st.sampled_from(["a", "b", "c", "d", "e"])
ASKED = st.dictionaries(st.sampled_from(["j1", "j2", "j3", "j4"]), st.integers(0, 500))
DEMAND = st.dictionaries(REPLICAS, ASKED, min_size=1)


@given(st.integers(0, 300), DEMAND, st.integers(0, 1000))
def test_all_places_are_given_and_none_twice(
    ceiling: int, demand: dict[str, dict[str, int]], turn: int
) -> None:
    given_out = places(ceiling, demand, turn)
    assert given_out.keys() == demand.keys()
    assert sum(given_out.values()) == ceiling
    if ceiling >= len(demand):
        assert min(given_out.values()) >= 1


@given(st.integers(5, 300), DEMAND, st.randoms())
def test_everyone_who_knows_the_same_comes_to_the_same_result(ceiling, demand, random) -> None:  # type: ignore[no-untyped-def]
    mixed = list(demand.items())
    random.shuffle(mixed)
    again = {replica: dict(reversed(list(asked.items()))) for replica, asked in mixed}
    assert places(ceiling, demand, 3) == places(ceiling, again, 3)


@given(st.floats(1, 1e6), DEMAND)
def test_fractions_are_one_in_all(ceiling: float, demand: dict[str, dict[str, int]]) -> None:
    parts = fractions(demand, ceiling)
    assert abs(sum(parts.values()) - 1.0) < 1e-6
    assert min(parts.values()) >= 0.02 - 1e-9


def test_one_job_is_divided_by_where_its_requests_are() -> None:
    assert places(20, {"a": {"j": 90}, "b": {"j": 30}}, 0) == {"a": 15, "b": 5}


def test_load_on_one_gets_nearly_all() -> None:
    assert places(20, {"a": {"j": 90}, "b": {}, "c": {}}, 0) == {"a": 18, "b": 1, "c": 1}


def test_a_small_job_on_one_replica_is_not_starved_by_a_large_one_on_another() -> None:
    assert places(20, {"a": {"large": 400}, "b": {"small": 4}}, 0) == {"a": 16, "b": 4}
    assert portions(20, {"a": {"large": 400}, "b": {"small": 40}}) == {"a": 10, "b": 10}


def test_fewer_places_than_replicas_go_round() -> None:
    demand = {"a": {"j": 5}, "b": {"j": 900}, "c": {"k": 1}, "idle": {}}
    turns = [places(1, demand, turn) for turn in range(3)]
    assert sorted(r for turn in turns for r, n in turn.items() if n) == ["a", "b", "c"]
    assert places(1, {"a": {}, "b": {"j": 1}}, 7) == {"a": 0, "b": 1}


@given(st.dictionaries(REPLICAS, st.floats(0, 100), min_size=1), st.floats(500, 1000), st.floats(0, 100))
def test_windows_add_up_to_the_limit(used: dict[str, float], limit: float, more: float) -> None:
    fraction = fractions({r: {"j": more * i} for i, r in enumerate(used)}, limit)
    given_out = {r: of_window(limit, used, fraction, r) for r in used}
    assert abs(sum(given_out.values()) - limit) < 1e-6 * limit
    assert all(given_out[r] >= used[r] for r in used)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_share_grows_at_once_and_leaves_the_others_their_least(now: int, target: int, most: int) -> None:
    kept = steady(now, target, most)
    assert kept <= most
    assert kept >= min(target, most)
    assert kept in (now, target, most)


def test_a_small_fall_is_no_reason_to_hand_over() -> None:
    assert steady(50, 47, 99) == 50
    assert steady(50, 40, 99) == 40
    assert steady(50, 50, 49) == 49


def test_demand_rises_at_once_and_falls_slowly() -> None:
    waves = Waves()
    assert waves.add({"j": 10}, 0.0) == {"j": 10}
    assert 7 < waves.add({"j": 1}, 0.2)["j"] < 9
    assert waves.add({"j": 30, "k": 1}, 0.4) == {"j": 30, "k": 1}
    assert waves.add({}, 5.0) == {}
