"""The test vectors are what the package does, and are in the wheel."""

import json
from importlib.resources import files

import pytest

from precad.protocol.round import run_round
from precad.protocol.states import Role
from tests.reference import vectors
from tests.reference.book import SERVERS
from tests.reference.transcripts import Table, expected, round_of, submissions_of

STORED = vectors.stored()


def test_the_file_is_the_one_that_is_made_today() -> None:
    """``python -m tests.reference.vectors`` writes it. A change that is not one of the notation is a new version."""
    assert json.loads(json.dumps(vectors.made())) == [each for each in STORED if each["kind"] != "seal"]


@pytest.mark.parametrize("vector", STORED, ids=lambda each: f"{each['kind']}: {each['name']}")
def test_the_package_gives_what_is_expected(vector: Table) -> None:
    assert expected(vector["kind"], vector["given"]) == vector["expected"]


HONEST = [each for each in STORED if each["kind"] == "round" and "sum" in each["expected"]]


@pytest.mark.parametrize("vector", HONEST, ids=lambda each: each["name"])
def test_a_round_in_memory_opens_the_same_sum(vector: Table) -> None:
    given, answer = vector["given"], vector["expected"]
    sent = {name: each for name, each in submissions_of(given).items() if name in given["selected"]}
    opened = run_round(round_of(given["round"]), sent, SERVERS[Role.A], SERVERS[Role.B])
    assert [str(value) for value in opened.noisy_sum] == answer["sum"]
    assert sorted(opened.valid) == answer["valid"]
    rejected = {name: found.reason.name for name, found in opened.rejected.items()}
    assert rejected == {name: reason for name, reason in answer["rejected"].items() if reason != "NOT_SELECTED"}


def test_they_are_many_and_half_of_them_are_malicious() -> None:
    assert len(STORED) >= 190
    assert sum(each["malicious"] for each in STORED) >= len(STORED) / 2
    assert len({(each["kind"], each["name"]) for each in STORED}) == len(STORED)


def test_malicious_means_refused() -> None:
    for each in STORED:
        answer = each["expected"]
        refused = answer.get("refused") or answer.get("rejected") or answer.get("valid") is False
        assert bool(refused) is each["malicious"], each["name"]


def test_they_come_with_the_package() -> None:
    assert files("precad.protocol").joinpath("vectors/version-2.json").is_file()
