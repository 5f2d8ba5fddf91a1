"""Every fault that docs/deployment.md names, under "When something breaks", has tests that cause it."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
GUIDE = TESTS.parent / "docs" / "deployment.md"
FAULTS = {
    "a client vanishes, answers late, twice, with garbage or too much": (
        "deployment/test_server.py::test_bad_replies_are_rejected_and_the_round_goes_on",
        "deployment/test_server.py::test_a_second_submission_and_a_late_one",
        "deployment/test_server.py::test_a_cheat_costs_nobody_else_anything",
        "deployment/test_conductor.py::test_who_joined_and_never_answers_holds_a_round_up_for_round_seconds",
        "flower/test_strategy.py::test_a_client_that_vanishes_costs_the_others_nothing",
    ),
    "A, B or a client is killed at any step": (
        "deployment/test_crashes.py::test_every_step",
        "deployment/test_conductor.py::test_a_crash_at_each_step",
        "deployment/test_native.py::test_a_kill_at_each_step_loses_nothing",
        "deployment/test_native_processes.py::test_kills_lose_nothing",
    ),
    "B is away, or slow": (
        "deployment/test_conductor.py::test_b_is_away_and_comes_back",
        "deployment/test_transports.py::test_no_retry_is_silent",
        "deployment/test_transports.py::test_no_wait_for_an_answer_is_silent",
    ),
    "a stranger, or a thousand, connect and say nothing": (
        "deployment/test_doors.py::test_idle_connections_keep_nobody_out",
        "deployment/test_doors.py::test_a_handshake_that_does_not_come",
        "deployment/test_doors.py::test_every_refused_handshake_is_a_line",
    ),
    "a second process is started on a server's store": (
        "deployment/test_config.py::test_two_processes_never_serve_one_store",
    ),
    "the SuperLink is away": ("deployment/test_gateway.py::test_faults_inside_are_not_told_outside",),
    "a node's clock is off by more than five minutes": ("deployment/test_gateway.py::test_only_known_nodes_are_heard",),
    "the keeper of a client on Flower is killed, or its disk is full": (
        "deployment/test_keeper.py::test_a_keeper_that_is_restarted_is_waited_for",
        "deployment/test_keeper.py::test_a_keeper_that_stays_away_is_named",
        "deployment/test_keeper.py::test_a_full_disk_is_said_and_nothing_is_lost",
    ),
    "a client's data have spent their budget": (
        "deployment/test_native.py::test_a_budget_of_the_data_that_is_spent_ends_it",
        "flower/test_strategy.py::test_one_budget_of_the_data_over_all_apps",
    ),
    "the ledger of a data set is put back from a backup": (
        "deployment/test_data_ledger.py::test_a_ledger_that_was_put_back_is_refused",
    ),
    "a server's store is put back from a backup, or its disk is set back": (
        "deployment/test_set_back.py::test_b_stops_for_good_when_a_client_shows_what_it_forgot",
        "deployment/test_set_back.py::test_a_stops_for_good_too",
        "deployment/test_conductor.py::test_a_server_that_was_set_back_plays_no_round",
    ),
    "the other server's noisy share makes the sum longer than honest servers can": (
        "deployment/test_server.py::test_a_sum_that_is_too_long_is_opened_by_neither_and_the_task_ends_there",
    ),
    "a round cannot go on": (
        "deployment/test_service_a.py::test_a_round_is_given_up_at_either_server",
        "deployment/test_conductor.py::test_a_round_is_given_up_by_its_operator",
        "deployment/test_server.py::test_b_gives_up_a_round_until_it_has_tallied_it",
    ),
    "a round has too few participants, or none": (
        "deployment/test_conductor.py::test_too_few_are_given_up_with_a_warning",
        "deployment/test_server.py::test_a_round_with_too_few_is_never_opened",
        "deployment/test_server.py::test_b_tallies_no_round_with_too_few",
    ),
    "a second app is started on A's task": (
        "deployment/test_app_door.py::test_two_apps_at_once",
        "deployment/test_app_door.py::test_an_app_that_is_killed_leaves_its_place",
    ),
    "the disk is full": (
        "deployment/test_server.py::test_a_full_disk_loses_nothing",
        "deployment/test_transports.py::test_a_disk_that_fills_while_b_counts_or_logs",
        "deployment/test_conductor.py::test_a_disk_that_is_full_does_not_end_the_rounds",
    ),
    "another task, model or certificate": (
        "deployment/test_transports.py::test_another_task",
        "deployment/test_transports.py::test_another_certificate_than_as",
        "deployment/test_transports.py::test_another_certificate_than_bs",
        "deployment/test_client.py::test_another_model_is_refused",
        "deployment/test_client_door.py::test_a_task_of_another_digest_ends_a_client",
    ),
    "a program, a message or a `task.json` of another version of the protocol": (
        "deployment/test_transports.py::test_another_version",
        "deployment/test_task.py::test_a_bad_file_is_refused_in_words",
    ),
    "the clock is off by more than a day": (
        "deployment/test_doors.py::test_a_clock_that_is_off_is_said_at_both_sides",
        "deployment/test_transports.py::test_a_clock_that_is_off",
    ),
    "a key can be read by others": ("deployment/test_private_files.py::test_a_key_that_others_can_read_is_refused",),
}


def test_every_fault_of_the_guide_is_here() -> None:
    section = GUIDE.read_text().partition("## When something breaks")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert rows[0] == "what"
    assert rows[1:] == list(FAULTS)


@pytest.mark.parametrize("name", sorted({name for names in FAULTS.values() for name in names}))
def test_its_tests_exist(name: str) -> None:
    file, _, function = name.partition("::")
    found = [node.name for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert function in found
