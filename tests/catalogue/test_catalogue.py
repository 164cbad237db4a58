"""Correct programs pass, and of each kind of mistake some are told strictly right, or are known not to be."""

from __future__ import annotations

import inspect
import linecache
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.catalogue.drilling import DEADLINE_S, Drill, drills
from tests.catalogue.misses import known_misses
from tests.catalogue.programs import KINDS, Program, Rank, catalogue, correct, mistake
from tests.catalogue.scoring import Judged, places_in

PATIENCE_S = 60.0  # for correct programs, on whatever machine
MISTAKES, CORRECT = 120, 60  # at least
WAITED_S = 3.0  # for a mistake that is told only when the time is over
EACH_KIND = 3
LINES = 25  # of one program

# Some are in a collective, and others wait for a message of theirs or send them one.
COLLECTIVE_AGAINST_MESSAGE = (
    "deadlocks.a_message_behind_a_barrier",
    "deadlocks.reports_before_it_hands_in",
    "messages.takes_one_gradient_less_than_come_back",
    "ordering.receives_what_is_broadcast",
    "turns.does_not_pass_on_in_the_first_turn",
)
# The whole catalogue takes minutes: `python benchmarks/catalogue.py --check`.
CHOSEN = (
    *COLLECTIVE_AGAINST_MESSAGE,
    "ordering.metrics_before_the_loss",
    "ordering.swapped_in_the_fiftieth_step",
    "missing.validation_on_some",
    "missing.skips_the_first_step",
    "training.batches_that_do_not_divide",
    "extra.rank_zero_logs_an_average",
    "extra.waits_twice_after_saving",
    "sharded.saved_by_rank_zero_alone",
    "operators.asynchronous_among_others",
    "operators.two_say_and_and_two_say_or",
    "roots.a_rank_of_the_group_for_a_rank_of_the_world",
    "roots.settings_of_another",
    "roots.the_first_of_the_world_for_the_first_of_its_half",
    "datatypes.as_many_bytes",
    "datatypes.sent_as_one_and_received_as_another",
    "sizes.routes_one_row_more_to_an_expert",
    "sizes.a_message_smaller_than_its_buffer",
    "sizes.one_actor_sends_a_field_more",
    "sizes.an_old_client_asks_for_the_version_first",
    "groups.as_many_members_but_another_group",
    "groups.across_where_the_others_go_along",
    "groups.tensor_parallel_for_data_parallel",
    "groups.one_of_two_threads_takes_the_others_group",
    "groups.two_ways_to_tie_the_weights",
    "deadlocks.both_receive_first",
    "deadlocks.shared_weights_before_or_after_the_norm",
    "deadlocks.groups_turned_round_in_the_fiftieth_step",
    "deadlocks.on_the_weights_that_come_of_it",
    "deadlocks.takes_the_two_files_the_other_way_round",
    "deadlocks.builds_within_the_lock_what_others_read_within_it",
    "deadlocks.evaluates_its_pair_before_it_averages",
    "ordering.figures_by_name_in_another_order",
    "ordering.groups_as_their_gradients_became_ready",
    "ordering.objects_to_one_where_all_get_them",
    "sizes.a_frozen_head_left_out_of_one_round",
    "messages.one_of_the_ring_does_not_send",
    "messages.another_tag",
    "messages.for_two_and_one_of_them_takes_it",
    "roots.a_leader_of_its_own_in_one_node",
    "sizes.a_stage_of_another_width",
    "unlike_the_others.the_rest_goes_out_behind_the_barrier",
    "messages.a_micro_batch_that_a_stage_does_not_take",
    "messages.a_micro_batch_that_a_stage_sends_twice",
    "messages.a_stage_that_turns_to_the_next_for_its_input",
    "messages.a_stage_that_counts_its_tags_from_one",
    "messages.a_way_back_that_ends_a_micro_batch_early",
    "messages.a_worker_answers_under_another_tag",
    "messages.numbered_by_the_hundred",
    "messages.nothing_changed_so_no_farewell",
    "messages.a_worker_that_stops_after_its_warm_up_and_ten",
    "races.the_last_word_counts",
    "races.the_best_of_all_by_its_place",
    "races.a_name_for_each_of_two",
    "races.the_third_comes_first",
    "races.adds_up_what_comes_in_each_round",
    "races.names_nobody_in_the_last_round",
    "races.resamples_the_worst_by_the_order_of_arrival",
    "races.a_collector_that_files_by_its_own_count",
    "requests.one_rank_does_not_wait",
    "requests.all_but_the_last_bucket",
    "group_leaks.a_group_for_each_step",
    "hazards.zeroed_before_it_is_reduced",
    "hazards.read_before_it_is_received",
    "layouts.one_rank_reads_into_a_column",
    "layouts.one_tensor_for_what_all_have",
    "lost.a_key_that_its_batch_has_not",
    "lost.killed_in_the_fiftieth_step",
    "stores.the_neighbour_of_the_last",
    "stores.two_under_one_number",
    "stores.one_more_than_there_are",
    "stores.counts_by_get_and_set",
    "stores.goes_home_before_the_second_count",
    "stores.names_its_key_the_other_way_round",
    "stores.two_of_four_count_by_hand",
    "stores.swaps_the_roster_and_does_not_look",
    "stuck.never_converges",
)
# The reports of these begin at an earlier line of the culprit's: where it took what it holds, what it swapped later.
BEGIN_BEFORE = {
    "deadlocks.builds_within_the_lock_what_others_read_within_it": "fcntl.flock(",
    "stores.swaps_the_roster_and_does_not_look": "rank.store.get(",
}
COLLECTIVES = re.compile(r"\b(barrier|all_reduce|broadcast) #\d+ on 'default'")
MESSAGES = re.compile(
    r"\brank \d (waits for a message from|sends float32\S* to|leaves out a (send to|receive from)) rank \d"
)
PROGRAMS = {program.name: program for program in catalogue()}


@pytest.fixture(scope="module")
def drill() -> Iterator[Drill]:
    with drills() as made:
        yield made


def runnable(program: Program) -> Program:
    if not program.runs_here:
        pytest.skip(f"needs torch {'.'.join(map(str, program.torch))}")
    return program


@pytest.mark.parametrize("name", [program.name for program in catalogue("correct")])
def test_what_is_right_passes(drill: Drill, name: str) -> None:
    verdict = drill.verdict_on(runnable(PROGRAMS[name]), PATIENCE_S)
    assert not verdict.noticed, verdict.text


@pytest.mark.parametrize("name", CHOSEN)
def test_a_mistake_is_told_strictly_right(drill: Drill, name: str) -> None:
    program = runnable(PROGRAMS[name])
    stuck = program.truth is not None and program.truth.kind == "stuck rank"
    judged = Judged(program, drill.verdict_on(program, WAITED_S if stuck else DEADLINE_S))
    known = known_misses().get(name)
    if known is None:
        assert judged.wrong_in == (), judged.verdict.text
        assert_begins_at_a_guilty_line(judged)
    else:
        assert judged.wrong_in, f"{name} is told strictly right by now: take it off the known misses ({known})"


def assert_begins_at_a_guilty_line(judged: Judged) -> None:
    program, text = judged.program, judged.verdict.text
    assert program.truth is not None
    file, line = places_in(text)[0]
    assert program.file.endswith(file), text
    if program.name in BEGIN_BEFORE:
        assert BEGIN_BEFORE[program.name] in linecache.getline(program.file, line), text
    else:
        assert line in program.truth.lines, text


@pytest.mark.parametrize("name", COLLECTIVE_AGAINST_MESSAGE)
def test_a_collective_and_a_message_that_keep_each_other_waiting_are_both_told(drill: Drill, name: str) -> None:
    text = drill.verdict_on(runnable(PROGRAMS[name])).text
    assert COLLECTIVES.search(text), text
    assert MESSAGES.search(text), text


def test_each_kind_has_its_programs() -> None:
    kinds = Counter(program.truth.kind for program in catalogue("mistakes") if program.truth is not None)
    assert kinds.total() >= MISTAKES
    assert {kind: kinds[kind] for kind in KINDS if kinds[kind] < EACH_KIND} == {}
    assert len(catalogue("correct")) >= CORRECT
    assert {PROGRAMS[name].truth.kind for name in CHOSEN} == set(KINDS)  # type: ignore[union-attr]


def test_names_are_unique_and_known() -> None:
    assert len(PROGRAMS) == len(catalogue())
    assert [name for name in known_misses() if name not in PROGRAMS or PROGRAMS[name].truth is None] == []


def test_programs_are_short() -> None:
    long = {name: len(inspect.getsource(program.body).splitlines()) for name, program in PROGRAMS.items()}
    assert {name: lines for name, lines in long.items() if lines > LINES} == {}


def nothing_marked(rank: Rank) -> None:
    """A program without a guilty line."""


def one_line_marked(rank: Rank) -> None:
    assert rank.index  # culprit


def test_a_mistake_without_a_guilty_line_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing_marked has no line that ends in '# culprit'"):
        mistake("missing call", ranks=2)(nothing_marked)


def test_a_correct_program_with_a_guilty_line_is_refused() -> None:
    with pytest.raises(ValueError, match="one_line_marked is called correct"):
        correct(ranks=2)(one_line_marked)


def test_unknown_kinds_and_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="'typo' is no kind of mistake; choose from call ordering, "):
        mistake("typo", ranks=2)
    with pytest.raises(ValueError, match=r"ranks \(2,\) are not all among 2"):
        mistake("missing call", culprits=(2,), ranks=2)


def test_the_guilty_lines_are_read_from_the_source() -> None:
    program = mistake("missing call", culprits=(1,), ranks=2)(one_line_marked)
    assert program.truth is not None
    (line,) = program.truth.lines
    assert line == one_line_marked.__code__.co_firstlineno + 1
