"""One round of the protocol, party by party, against the keystream that no party can avoid and against a plain sum."""

import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError, Rejected
from precad.mpc.prg import Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.mpc.single_use import Once
from precad.privacy import clipping
from precad.protocol import aggregation, states, submission
from precad.protocol.messages import encode
from precad.protocol.params import Params, Round, Validation
from precad.protocol.states import Role
from precad.protocol.submission import Submission
from precad.protocol.triples import dealing
from precad.protocol.triples import norm as norm_triples
from precad.protocol.triples.dealing import Plan

FIXED_EXCHANGES = 4
"""Messages that each server sends the other in every round: close, nonce, tally, noisy share."""

OTHER = {Role.A: Role.B, Role.B: Role.A}


def run(dim: int, clients: int, validation: Validation, repeats: int = 7) -> dict[str, Any]:
    """All figures of one setting: medians of whole rounds, per submission unless the name says ``round``."""
    params = Params(
        dim=dim, clients=clients, record_bound=2.0, client_bound=30.0, noise_multiplier=1.0, validation=validation
    )
    round_ = Round(params, digest(b"precad bench", b"task"), 0, digest(b"precad bench", b"model"))
    floats = np.random.default_rng(0).standard_normal((clients, dim))
    updates = {f"client-{i}": clipping.encode_clipped(x, 30.0, params.fractional_bits) for i, x in enumerate(floats)}
    rounds = [_Stopwatch().time_round(round_, updates, floats) for _ in range(repeats + 1)][1:]  # the first compiles
    ms = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    parties = ("client", "A", "B")
    each_client, each_a, each_b = (ms[party] / clients for party in parties)
    stream_client, stream_a, stream_b = (ms[f"keystream {party}"] / clients for party in parties)
    return {
        "mode": validation.value,
        "dim": dim,
        "clients": clients,
        "client_ms": each_client,
        "server_a_ms": each_a,
        "server_b_ms": each_b,
        "keystream_ms": stream_b,
        "keystream_a_ms": stream_a,
        "keystream_client_ms": stream_client,
        "ratio_client": each_client / stream_client,
        "ratio_server_a": each_a / stream_a if validation is not Validation.NONE else None,
        "ratio_server_b": each_b / stream_b,
        "round_ms": sum(ms[name] for name in ("client", "A", "B", "once A", "once B")),
        "server_round_ms": ms["A"] + ms["once A"],
        "plain_round_ms": ms["plain"],
        **rounds[0].bytes,
        "exchanges": FIXED_EXCHANGES + _validation_exchanges(params),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class _Stopwatch(dict[str, float]):
    """Milliseconds of each party in a round: what grows with its submissions, and what is done once."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = {"bytes_client_a": 0, "bytes_client_b": 0, "bytes_a_to_b": 0, "bytes_b_to_a": 0}

    @contextmanager
    def running(self, party: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self[party] = self.get(party, 0.0) + 1e3 * (time.perf_counter() - start)

    def time_round(
        self, round_: Round, updates: dict[str, NDArray[np.int64]], floats: NDArray[np.float64]
    ) -> "_Stopwatch":
        """Drive ``states.py`` through a whole round; and the keystreams and the plain sum beside it."""
        for party in ("client", "A", "B"):
            with self.running(f"keystream {party}"):
                for _ in updates:
                    _keystream(round_, party)
        with self.running("plain"):
            _plain_round(round_.params, floats)
        sent = {name: self._submit(round_, name, x) for name, x in updates.items()}
        collecting = {role: states.Collecting(round_, role, frozenset(sent)) for role in Role}
        kept: dict[tuple[Role, str], states.Accepted] = {}
        for name, submitted in sent.items():
            for role, part in ((Role.A, submitted.part_a), (Role.B, submitted.part_b)):
                with self.running(role.name):
                    received = states.receive(collecting[role], name, submitted.header, part)
                if isinstance(received, Rejected):
                    raise PrecadError(f"an honest submission was rejected: {received.reason}")
                collecting[role], kept[role, name] = received
        checking = self._challenge(collecting)
        if round_.params.validation is Validation.PROOF:
            for name in sent:
                checking = self._check(checking, {role: kept[role, name] for role in Role})
        if round_.params.validation is Validation.TRIPLES:
            checking = self._compare(checking, kept)
        self._open(checking, kept)
        return self

    def _submit(self, round_: Round, name: str, x: NDArray[np.int64]) -> Submission:
        with self.running("client"):
            submitted = submission.submit(round_, name, x)
        self.bytes["bytes_client_a"] = len(submitted.header) + len(submitted.part_a)
        self.bytes["bytes_client_b"] = len(submitted.header) + len(submitted.part_b)
        return submitted

    def _challenge(self, collecting: dict[Role, states.Collecting]) -> dict[Role, states.Checking]:
        closing, agreed, checking = {}, {}, {}
        for role in Role:
            with self.running(f"once {role.name}"):
                closing[role] = states.close(collecting[role])
        for role in Role:
            with self.running(f"once {role.name}"):
                agreed[role] = states.agree(closing[role][0], closing[OTHER[role]][1], Secret.fresh())
        for role in Role:
            with self.running(f"once {role.name}"):
                checking[role] = states.challenge(agreed[role][0], agreed[OTHER[role]][1])
        return checking

    def _check(
        self, checking: dict[Role, states.Checking], accepted: dict[Role, states.Accepted]
    ) -> dict[Role, states.Checking]:
        own, judged = {}, {}
        for role in Role:
            with self.running(role.name):
                own[role] = states.check(checking[role], accepted[role])
            self.bytes[f"bytes_{role.name.lower()}_to_{OTHER[role].name.lower()}"] = len(encode(own[role]))
        for role in Role:
            with self.running(role.name):
                judged[role] = states.judge(checking[role], own[role], own[OTHER[role]])
        return judged

    def _compare(
        self, checking: dict[Role, states.Checking], kept: dict[tuple[Role, str], states.Accepted]
    ) -> dict[Role, states.Checking]:
        clients = sorted(checking[Role.A].headers)
        with self.running("dealer"):
            deal_a, deal_b = dealing.deal(
                checking[Role.A].round, clients, checking[Role.A].closed, Secret.fresh(), Secret.fresh()
            )
        masking = {
            Role.A: states.begin_triples(checking[Role.A], Once("the deal", deal_a)),
            Role.B: states.begin_triples(checking[Role.B], Once("the deal", deal_b)),
        }
        for name in clients:
            own = {}
            for role in Role:
                with self.running(role.name):
                    own[role] = states.mask(checking[role], masking[role], kept[role, name])
            for role in Role:
                with self.running(role.name):
                    masking[role] = norm_triples.absorb(masking[role], own[role], own[OTHER[role]])
        plan = masking[Role.A].plan
        self.bytes["bytes_a_to_b"] = self.bytes["bytes_b_to_a"] = plan.server_bytes // len(clients)
        self.bytes["bytes_dealer_b"] = plan.dealer_bytes // len(clients)
        opening = {role: norm_triples.open_norms(masking[role]) for role in Role}
        at: dict[Role, Any] = {}
        for role in Role:
            with self.running(role.name):
                at[role] = norm_triples.compare(opening[role][0], opening[OTHER[role]][1])
        while isinstance(at[Role.A], tuple):
            sent = {role: at[role][1] for role in Role}
            for role in Role:
                with self.running(role.name):
                    at[role] = norm_triples.step(at[role][0], sent[OTHER[role]])
        return {role: states.decide(checking[role], at[role]) for role in Role}

    def _open(self, checking: dict[Role, states.Checking], kept: dict[tuple[Role, str], states.Accepted]) -> None:
        tallied, revealed = {}, {}
        for role in Role:
            valid = [kept[role, name] for name in checking[role].valid]
            with self.running("noise"):
                aggregation.noisy_sum(checking[role].round, role.value, [], Secret.fresh())
            with self.running("noise and shares"):
                tallied[role] = states.aggregate(checking[role], valid, Secret.fresh())
            noise = self.pop("noise")
            self[f"once {role.name}"] += noise
            self[role.name] += self.pop("noise and shares") - noise
        for role in Role:
            with self.running(f"once {role.name}"):
                revealed[role] = states.reveal(tallied[role][0], tallied[OTHER[role]][1])
        for role in Role:
            with self.running(f"once {role.name}"):
                states.finish(revealed[role][0], revealed[OTHER[role]][1])


def _keystream(round_: Round, party: str) -> None:
    """The AES-CTR that a party must expand for one submission, and no more."""
    params, words = round_.params, 0
    if params.validation is Validation.PROOF:
        shape = submission.proof_shape(params)
        masks = shape.entry_wires + shape.bit_wires
        words += 2 * params.dim + (2 * masks if party == "client" else masks)  # Z; the client has both servers' masks
    if params.validation is Validation.TRIPLES and party != "client":
        words += 3 * params.dim  # a twice, and Z
    if party != "A":
        words += params.dim + 1 + submission.part_a_sizes(params)["tail"]  # B's shares
    chunk = np.empty(1 << 14, np.uint64)
    stream = Stream(Secret.fresh(), Purpose.SHARE, round_.context("bench"))
    for start in range(0, words, chunk.size):
        stream.fill_words(chunk[: words - start])


def _validation_exchanges(params: Params) -> int:
    if params.validation is Validation.TRIPLES:
        return Plan(params.dim, 1).exchanges
    return 1 if params.validation is Validation.PROOF else 0


def _plain_round(params: Params, updates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same sum and noise in the clear: one trusted server, numpy."""
    noise = np.random.default_rng(0).standard_normal(params.dim)
    total: NDArray[np.float64] = updates.sum(axis=0)
    return total + params.noise_multiplier * params.sensitivity * noise
