"""Algorithms 1 and 2, round by round."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

from precad.errors import PrecadError, Reason
from precad.mpc.prg import Context, Purpose
from precad.privacy.clipping import encode_clipped
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import Entry, Ledger, LedgerError, Origin, read
from precad.privacy.sampling import poisson_sample
from precad.privacy.terms import Adversary, Terms
from precad.protocol.params import Normalise, Round, Unit, Validation
from precad.protocol.update import Optimiser
from precad.settings import Protocol
from precad.simulation import aggregators
from precad.simulation.aggregators import Aggregator, Collector, Updates
from precad.simulation.clients import SAMPLES
from precad.simulation.evaluation import load_parameters, read_parameters
from precad.simulation.problem import AttackContext, Problem
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from tests.messages import says
from tests.simulation.small import CLIENTS, boosted, data, hyperparameters, model, task

Floats = NDArray[np.float64]
SEED = Randomness.repeatable(7)


def trainer(protocol: Protocol = Protocol.PRECAD, **changes: object) -> Trainer:
    return Trainer(task(), hyperparameters(protocol=protocol, **changes), SEED)


def final(trainer: Trainer) -> Floats:
    for _ in trainer.rounds():
        pass
    return trainer.progress.model.theta


def test_a_round_is_what_the_paper_says() -> None:
    """One round of central DP against the paper's lines, written out with single-record gradients."""
    run = trainer(Protocol.CDP, client_rate=1.0)
    before, f = run.progress.model.theta.copy(), run.params.fractional_bits
    total = np.zeros(before.size)
    net = model()
    load_parameters(net, before)
    for name, records in run.task.clients.items():
        stream = SEED.stream(Purpose.SAMPLE, Context(SAMPLES, 0, name))
        client = np.zeros(before.size)
        for i in poisson_sample(stream, len(records), 0.5):
            x, y = records.batch(np.array([i]))
            parts = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), list(net.parameters()))
            g = torch.cat([part.reshape(-1) for part in parts]).double().numpy()
            client += encode_clipped(g, 1.0, f) / 2**f
        total += encode_clipped(-client, 4.0, f) / 2**f
    run.play()
    moved = (run.progress.model.theta - before) * (CLIENTS * 30 * 0.5) / 0.5
    noise = moved - total
    std = run.params.noise_multiplier * run.params.sensitivity
    assert abs(noise.std() / std - 1) < 6 / math.sqrt(2 * noise.size)  # six standard deviations: 2e-9
    assert abs(np.dot(noise, total)) < 6 * std * np.linalg.norm(total)


def test_the_protocol_changes_nothing_but_the_noise() -> None:
    """Same seed, noise next to nothing: all protocols that clip end at the same model."""
    quiet = {"noise_multiplier": 1e-3, "record_bound": 1.0}
    ends = [final(trainer(protocol, **quiet)) for protocol in Protocol if protocol is not Protocol.PLAIN]
    for end in ends[1:]:
        assert np.abs(end - ends[0]).max() < 1e-3
    assert not np.array_equal(ends[0], ends[1])


@pytest.mark.parametrize("validation", Validation)
def test_validation_does_not_change_the_model(validation: Validation) -> None:
    """But for the noise, which is drawn anew as it is bound to the task."""
    quiet = final(trainer(validation=validation, noise_multiplier=1e-3))
    assert np.abs(quiet - final(trainer(noise_multiplier=1e-3))).max() < 1e-3


def test_a_seeded_run_repeats_to_the_bit_and_a_private_one_does_not() -> None:
    assert np.array_equal(final(trainer()), final(trainer()))
    private = [final(Trainer(task(), hyperparameters(), Randomness.private())) for _ in range(2)]
    assert not np.array_equal(private[0], private[1])


def test_a_malicious_client_is_rejected_in_every_round_and_the_rest_goes_on() -> None:
    malicious = Trainer(task({"client-2": boosted}), hyperparameters(client_rate=1.0), SEED)
    for outcome in malicious.rounds():
        assert {name: rejected.reason for name, rejected in outcome.rejected.items()} == {"client-2": Reason.INVALID}
    without = Trainer(task({"client-2": lambda context: 0 * context.update}), hyperparameters(client_rate=1.0), SEED)
    assert np.array_equal(malicious.progress.model.theta, final(without))


@pytest.mark.parametrize("protocol", [Protocol.PLAIN, Protocol.LDP, Protocol.DDP])
def test_without_validation_it_is_not(protocol: Protocol) -> None:
    run = Trainer(task({"client-2": boosted}), hyperparameters(client_rate=1.0, protocol=protocol), SEED)
    assert not run.play().rejected


def test_the_trusted_server_rejects_it_too_and_a_vector_at_the_bound_is_accepted_by_all() -> None:
    def at_the_bound(context: AttackContext) -> Floats:
        return context.update * (4.0 * (1 - 2**-20) / float(np.linalg.norm(context.update)))

    for protocol in (Protocol.CDP, Protocol.PRECAD):
        over = Trainer(task({"client-2": boosted}), hyperparameters(client_rate=1.0, protocol=protocol), SEED)
        assert set(over.play().rejected) == {"client-2"}
        within = Trainer(task({"client-2": at_the_bound}), hyperparameters(client_rate=1.0, protocol=protocol), SEED)
        assert not within.play().rejected


def test_a_client_that_sends_no_numbers_harms_nobody() -> None:
    """NaN is sent as 0, since the grid has no other name for it; what is huge is rejected."""
    for value, rejected in ((np.nan, set()), (np.inf, {"client-1"}), (1e300, {"client-1"})):
        full = partial(lambda value, context: np.full_like(context.update, value), value)
        run = Trainer(task({"client-1": full}), hyperparameters(client_rate=1.0), SEED)
        assert set(run.play().rejected) == rejected


def test_nobody_selected_is_a_round_of_noise() -> None:
    run = trainer(client_rate=1e-9)
    before = run.progress.model.theta
    outcome = run.play()
    assert outcome.selected == ()
    assert outcome.update_norm > 0
    assert not np.array_equal(run.progress.model.theta, before)


def test_memory_is_bounded_by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of a round compute a few at a time, and the result is that of all at once."""
    whole = final(trainer(client_rate=1.0))
    monkeypatch.setattr("precad.simulation.clients.GROUP", 2)
    assert np.allclose(final(trainer(client_rate=1.0)), whole, atol=1e-4)


def test_the_normaliser_is_public_unless_asked_for() -> None:
    sizes = {f"client-{number}": 30 for number in range(CLIENTS)}
    assert hyperparameters().normaliser(sizes, ()) == pytest.approx(0.8 * 0.5 * CLIENTS * 30)
    realised = hyperparameters(normalise=Normalise.REALISED)
    assert realised.normaliser(sizes, {"client-0", "client-3"}) == pytest.approx(0.5 * 60)
    by_client = hyperparameters(unit=Unit.CLIENT)
    assert by_client.normaliser(sizes, ()) == pytest.approx(0.8 * CLIENTS)


@pytest.mark.parametrize("optimiser", Optimiser)
def test_an_empty_round_under_the_realised_normaliser_leaves_the_model(optimiser: Optimiser) -> None:
    """There is no mean to move by. The step of such a round was 51.9, of noise alone, where the others had 0.72."""
    run = trainer(client_rate=1e-9, normalise=Normalise.REALISED, optimiser=optimiser)
    before = run.progress.model
    outcome = run.play()
    assert outcome.selected == ()
    assert run.progress.model is before
    assert run.progress.round == 1
    run.progress.check(run.params.dim, CLIENTS, run.hyperparameters)


def test_who_has_spent_its_budget_sits_out() -> None:
    one = hyperparameters().epsilon(Adversary.SERVER, 1, 93)
    two = hyperparameters().epsilon(Adversary.SERVER, 2, 93)
    run = trainer(client_rate=1.0, budget=(one + two) / 2)
    assert [len(outcome.selected) for outcome in run.rounds()] == [CLIENTS, 0, 0, 0]
    assert run.epsilon(Adversary.SERVER) == one
    with pytest.raises(ValueError, match=says("budget", one / 2)):
        trainer(budget=one / 2)


def test_what_each_adversary_sees_of_each_protocol() -> None:
    """Paper, Table 1, and PROTOCOL §7a."""
    seen = {
        protocol: [hyperparameters(protocol=protocol).terms(10).sigma_seen(adversary) for adversary in Adversary]
        for protocol in Protocol
    }
    assert seen[Protocol.PRECAD] == [1.0, pytest.approx(math.sqrt(2))]
    assert seen[Protocol.PLAIN] == [0.0, 0.0]
    assert seen[Protocol.CDP] == [0.0, 1.0]
    assert seen[Protocol.LDP] == seen[Protocol.DDP] == [1.0, 1.0]
    weaker = hyperparameters(noise=Adversary.CLIENTS)
    assert [weaker.terms(10).sigma_seen(adversary) for adversary in Adversary] == pytest.approx([math.sqrt(0.5), 1.0])
    assert math.isinf(trainer(Protocol.PLAIN).hyperparameters.epsilon(Adversary.SERVER, 3, 10))
    of_client = hyperparameters(unit=Unit.CLIENT).epsilon(Adversary.SERVER, 3, 10)
    assert of_client > hyperparameters().epsilon(Adversary.SERVER, 3, 10)


def test_the_client_unit_trains_without_clipping_records() -> None:
    run = trainer(unit=Unit.CLIENT, noise_multiplier=0.1)
    assert run.params.sensitivity == 4.0
    assert np.isfinite(final(run)).all()


def test_the_ledger_counts_who_was_selected(tmp_path: Path) -> None:
    run = trainer()
    run.keep_ledger(lambda task, terms, origin: Ledger(tmp_path / "ledger", task, terms, origin))
    outcomes = list(run.rounds())
    book = read(tmp_path / "ledger")
    book.verify()
    assert book.origin == Origin(unit="record", private=False)
    assert [entry.participants for entry in book.entries()] == [outcome.selected for outcome in outcomes]
    counts = dict(zip(run.names, run.progress.participations.tolist(), strict=True))
    assert {name: count for name, count in counts.items() if count} == book.counts
    most = max(counts.values())
    for adversary in Adversary:
        assert epsilon(book.terms, adversary, most) == run.epsilon(adversary)


class SlowLedger(Ledger):
    """Says what it does in a list, waits in the middle of it, and may fail."""

    def __init__(
        self, path: Path, task: str, terms: Terms, happened: list[str], wait: Callable[[], object], *, fails: bool
    ) -> None:
        super().__init__(path, task, terms)
        self._happened, self._wait, self._fails = happened, wait, fails

    def record(self, round_: int, participants: Iterable[str]) -> Entry:
        self._wait()
        if self._fails:
            raise LedgerError("the disk is full")
        entry = super().record(round_, participants)
        self._happened.append("counted")
        return entry


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("ideal", "validation"), [(True, Validation.PROOF), *((False, validation) for validation in Validation)]
)
def test_a_round_is_counted_before_it_is_opened(
    ideal: bool, validation: Validation, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every form that has a ledger. Clients compute while the disk is slow; if it fails, nothing is opened."""
    happened: list[str] = []
    computed = threading.Event()
    opening = "noisy_sum" if ideal else "run_round"
    original_open, original_collect = getattr(aggregators, opening), Aggregator.collect

    def opens(*arguments: Any) -> Any:
        happened.append("opened")
        return original_open(*arguments)

    def collect(self: Aggregator, round_: Round) -> Collector:
        collector = original_collect(self, round_)
        add = collector.add

        def adds(updates: Updates) -> None:
            add(updates)
            happened.append("computed")
            computed.set()

        monkeypatch.setattr(collector, "add", adds)
        return collector

    monkeypatch.setattr(aggregators, opening, opens)
    monkeypatch.setattr(Aggregator, "collect", collect)

    def wait() -> None:
        assert computed.wait(60)
        time.sleep(0.3)  # an opening that does not wait for the disk would come now

    run = Trainer(task(), hyperparameters(client_rate=1.0, validation=validation), SEED, ideal=ideal)
    run.keep_ledger(lambda of, terms, _: SlowLedger(tmp_path / "ledger", of, terms, happened, wait, fails=fails))
    if fails:
        with pytest.raises(LedgerError, match="disk is full"):
            run.play()
        assert set(happened) == {"computed"}
        assert run.progress.round == 0
    else:
        run.play()
        assert list(dict.fromkeys(happened)) == ["computed", "counted", "opened"]


@pytest.mark.parametrize(
    ("noise", "known"),
    [
        (Adversary.SERVER, "6dfe368ac58dc40d81afde021e368371140476ea9377a9c8e6325c24eccdf720"),
        (Adversary.CLIENTS, "d2f049a948bd8fe5753a205356b40a30c664222b4b75205927b3fc22976689c1"),
    ],
)
def test_a_run_of_an_earlier_version_goes_on(noise: Adversary, known: str, tmp_path: Path) -> None:
    """Its ledger, and all its streams, are bound to this digest."""
    opened: list[str] = []

    def open_ledger(of: str, terms: Terms, origin: Origin) -> Ledger:
        opened.append(of)
        return Ledger(tmp_path / "ledger", of, terms, origin)

    trainer(noise=noise).keep_ledger(open_ledger)
    assert opened == [known]


def test_a_model_that_diverges_is_named_with_its_round() -> None:
    with pytest.raises(PrecadError, match=says("round 1", "learning rate", 1e100)):
        trainer(learning_rate=1e100).play()


def test_learning_rates_fall_along_a_line() -> None:
    falling = hyperparameters(rounds=11, learning_rate=2.0, final_learning_rate=1.0)
    assert [falling.schedule.learning_rate_at(t, 11) for t in (0, 5, 10)] == [2.0, 1.5, 1.0]
    assert hyperparameters().schedule.learning_rate_at(3, 11) == 0.5


def test_the_noise_of_ddp_is_that_of_one_server_in_all() -> None:
    """τ = q·n noises of σ·R'/√τ: measured over many coordinates, to six standard deviations."""
    wide = nn.Sequential(nn.Linear(400, 100))
    empty = TensorDataset(torch.zeros(1, 400), torch.zeros(1, dtype=torch.long))
    wide_task = Problem.of_datasets(wide, nn.functional.cross_entropy, {f"c{i}": empty for i in range(9)})
    run = Trainer(wide_task, hyperparameters(client_rate=1.0, record_rate=1e-9, protocol=Protocol.DDP), SEED)
    outcome = run.play()
    expected = run.params.sensitivity * math.sqrt(run.params.dim)
    assert abs(outcome.update_norm / expected - 1) < 6 / math.sqrt(2 * run.params.dim)


def test_bad_tasks_are_refused_by_name() -> None:
    net = model()
    with pytest.raises(ValueError, match="no clients"):
        Problem.of_datasets(net, nn.functional.cross_entropy, {})
    with pytest.raises(ValueError, match="bank has no records"):
        Problem.of_datasets(net, nn.functional.cross_entropy, {"bank": data(0)})
    with pytest.raises(ValueError, match=says("bank", "Dataset", "list")):
        Problem.of_datasets(net, nn.functional.cross_entropy, {"bank": [1]})
    with pytest.raises(ValueError, match=says("mallory", "clients")):
        Problem.of_datasets(net, nn.functional.cross_entropy, {"bank": data()}, None, {"mallory": boosted})


def test_parameters_go_in_and_out_unchanged() -> None:
    net = model()
    net[0].bias.requires_grad_(False)
    theta = read_parameters(net)
    assert theta.size == 8 * 6 + 6 * 3 + 3
    load_parameters(net, theta + 1)
    assert np.allclose(read_parameters(net), theta + 1, atol=1e-6)
