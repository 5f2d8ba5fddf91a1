"""A server's folder as a page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.deployment import kit, receipts
from precad.deployment.run_view import server_source, task_statement
from precad.deployment.task import Participants
from precad.errors import PrecadError
from precad.lab.attacks import cheating
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary
from precad.protocol import submission
from precad.protocol.codec import Blob
from precad.protocol.params import Round, Unit
from precad.protocol.states import Role
from precad.protocol.submission import Submission
from precad.report.figures import Figures
from precad.report.page import render
from tests.deployment import world
from tests.deployment.consortium import Consortium


def played(folder: Path, consortium: Consortium, rounds: int = 2) -> Path:
    """Server A's folder after some rounds."""
    kit.server(consortium.task, world.MODEL, Role.A, folder / "a")
    consortium.folder = folder / "a"
    for _ in range(rounds):
        consortium.round()
    return folder / "a"


def test_rounds_verdicts_and_costs_are_those_of_the_store(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path)
    source = server_source(played(tmp_path, consortium))
    assert source is not None
    run = source.read()
    assert (run.name, run.done, run.finished) == ("a", 2, False)
    assert [line.selected for line in run.rounds] == [3, 3]
    assert run.rounds[-1].epsilon_server == epsilon(consortium.a.ledger.terms, Adversary.SERVER, 2)
    assert run.config.training.budget == 8.0
    taken = Figures(run).participation
    assert taken is not None
    assert taken.took_part.tolist() == [[1, 1]] * 3
    page = render([run])
    assert "clinic" in page
    assert "not finished: 2 of 50 rounds" in page
    assert "one server of the task" in page
    assert "the noise stands alone" in page
    consortium.round()  # the page follows a server that is running
    assert source.read().done == 3
    consortium.close()


def test_a_rejected_submission_was_sent_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consortium = Consortium(tmp_path)
    folder = played(tmp_path, consortium, rounds=1)
    (cheat,) = (item for item in cheating.CHEATS if item.name == "norm 10 C")
    honest = submission.submit

    def submit(round_: Round, name: str, x: NDArray[np.int64], head: Blob) -> Submission:
        return cheat.submit(round_, name) if name == "bank" else honest(round_, name, x, head=head)

    monkeypatch.setattr(submission, "submit", submit)
    consortium.round()
    source = server_source(folder)
    assert source is not None
    run = source.read()
    taken = Figures(run).participation
    assert taken is not None
    assert (taken.clients, taken.took_part.tolist()) == (("bank", "clinic", "lab"), [[1, 1]] * 3)
    assert taken.rejected.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert "<th scope='row'>bank</th><td>2</td><td>1</td><td>1</td>" in render([run])
    assert run.rounds[-1].epsilon_server == epsilon(consortium.a.ledger.terms, Adversary.SERVER, 2)
    consortium.close()


def test_hidden_participants_stay_hidden(tmp_path: Path) -> None:
    training = replace(world.TRAINING, participants=Participants.HIDDEN, minimum=0)
    consortium = Consortium(tmp_path, world.make(training))
    source = server_source(played(tmp_path, consortium))
    assert source is not None
    run = source.read()
    assert run.ledger is None
    assert run.rounds[-1].epsilon_server == consortium.task.epsilon  # of the cap, whoever came
    page = render([run])
    assert "for as many rounds as the task lets a client take part in" in page
    for words in ("bank", "clinic", "id='grid'", "updates were sent", "took part most often"):
        assert words not in page
    consortium.close()


def test_what_is_no_servers_folder(tmp_path: Path) -> None:
    assert server_source(tmp_path) is None
    consortium = Consortium(tmp_path)
    folder = played(tmp_path, consortium, rounds=0)
    source = server_source(folder)
    assert source is not None
    with pytest.raises(PrecadError, match="not run"):
        source.read()
    (folder / "alpha.db").write_bytes(b"nothing" * 200)
    with pytest.raises(PrecadError, match="is not a ledger"):
        source.read()
    consortium.close()


def test_the_statement_of_a_task(tmp_path: Path) -> None:
    """It counts the client that was opened, or by its own log sent, most often; where nobody may know, the cap."""
    consortium = Consortium(tmp_path)
    for _ in range(2):
        consortium.round()
    task, log = consortium.task, consortium.a.store.log()
    own = {name: consortium.client(name).log() for name in ("bank", "lab")}
    receipts.audit(task, log, consortium.b.store.log(), own)
    statement = task_statement(task, log, own)
    assert (statement.rounds, statement.participations, statement.private) == (2, 2, True)
    assert statement.costs[Adversary.SERVER] == epsilon(task.terms, Adversary.SERVER, 2)
    assert task.digest.hex() in statement.as_text()
    more = {"bank": [*own["bank"], *own["bank"][:1]]}
    assert task_statement(task, log, more).participations == 2
    assert task_statement(task, log[:1], own).participations == 2
    hidden = replace(task, bounds=replace(task.bounds, unit=Unit.CLIENT))
    hidden = replace(hidden, training=replace(hidden.training, participants=Participants.HIDDEN, minimum=0))
    assert task_statement(hidden, log, own).participations == task.training.participations
    consortium.close()
