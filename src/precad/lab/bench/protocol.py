"""One round of the protocol, party by party, against the keystream that no party can avoid and against a plain sum.

Each server is timed on one core, by its thread's clock, which stands still while other programs run. Then both servers
play whole rounds on one core and on all that there are, by the clock on the wall.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.mpc.cores import usable_cores
from precad.mpc.prg import Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.privacy import clipping
from precad.protocol import aggregation, submission
from precad.protocol.messages import Check, Gate, Masked, Message, NormOpening, encode
from precad.protocol.params import Params, Round, Validation
from precad.protocol.round import Servers, ServerSecrets, Stage, nonces_of, run_round
from precad.protocol.sizes import sizes
from precad.protocol.states import Role
from precad.protocol.triples.dealing import Plan

TARGETS = {"ratio_server_a": 4.5, "ratio_server_b": 3.2}
"""Accepted up to so many keystreams, in validation by proof at d = 1,000,000."""
FIXED_EXCHANGES = 4
"""Messages that each server sends the other in every round: close, nonce, tally, noisy share."""

_Message = TypeVar("_Message", bound=Message)
_Result = TypeVar("_Result")


def run(dim: int, clients: int, validation: Validation, repeats: int = 7) -> dict[str, Any]:
    """All figures of one setting: of whole rounds, per submission unless the name says ``round``.

    All times are those of the fastest of several rounds; ``speedup`` is that of both servers on all cores over one.
    """
    params = Params(
        dim=dim, clients=clients, record_bound=2.0, client_bound=30.0, noise_multiplier=1.0, validation=validation
    )
    secrets = ServerSecrets.fresh(), ServerSecrets.fresh()
    task, model = (digest(b"precad bench", name) for name in (b"task", b"model"))
    round_ = Round(params, task, 0, model, nonces_of(*secrets))
    floats = np.random.default_rng(0).standard_normal((clients, dim))
    updates = {f"client-{i}": clipping.encode_clipped(x, 30.0, params.fractional_bits) for i, x in enumerate(floats)}
    with _one_core():
        rounds = [_time_round(round_, secrets, updates, floats) for _ in range(repeats + 1)][1:]  # the first compiles
    sent = {name: submission.submit(round_, name, x) for name, x in updates.items()}
    one_core, all_cores = _fastest(lambda: run_round(round_, sent, *secrets), repeats)
    ms = {name: min(each.ms[name] for each in rounds) for name in rounds[0].ms}
    parties = ("client", "A", "B")
    each_client, each_a, each_b = (ms[party] / clients for party in parties)
    stream_client, stream_a, stream_b = (ms[f"keystream {party}"] / clients for party in parties)
    exchanges = {Validation.TRIPLES: Plan(dim, 1).exchanges, Validation.PROOF: 1, Validation.NONE: 0}
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
        "cores": usable_cores(),
        "servers_round_one_core_ms": one_core,
        "servers_round_all_cores_ms": all_cores,
        "speedup": one_core / all_cores,
        "plain_round_ms": ms["plain"],
        **rounds[0].bytes,
        **({"bytes_dealer_b": sizes(params).deal} if validation is Validation.TRIPLES else {}),
        "exchanges": FIXED_EXCHANGES + exchanges[validation],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


@contextmanager
def _one_core() -> Iterator[None]:
    """Keep this thread, and the threads that it starts, to one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _fastest(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The least milliseconds on one core and on all cores, taking turns."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for k, cores in enumerate((_one_core(), nullcontext())):
            with cast(AbstractContextManager[None], cores):
                start = time.perf_counter()
                work()
                best[k] = min(best[k], 1e3 * (time.perf_counter() - start))
    return best[0], best[1]


def _time_round(
    round_: Round,
    secrets: tuple[ServerSecrets, ServerSecrets],
    updates: dict[str, NDArray[np.int64]],
    floats: NDArray[np.float64],
) -> "_Stopwatch":
    """A whole round, party by party; and the keystreams and the plain sum beside it."""
    watch = _Stopwatch()
    for party in ("client", "A", "B"):
        with watch.running(f"keystream {party}"):
            for _ in updates:
                _keystream(round_, party)
    with watch.running("plain"):
        _plain_round(round_.params, floats)
    with watch.running("client"):
        sent = {name: submission.submit(round_, name, x) for name, x in updates.items()}
    opened = run_round(round_, sent, *secrets, watch)
    if opened.rejected:
        raise PrecadError(f"honest submissions were rejected: {opened.rejected}")
    for role in Role:
        noise = f"noise {role.name}"
        with watch.running(noise):
            aggregation.noisy_sum(round_, role.value, (), Secret.fresh())
        watch.ms[f"once {role.name}"] += watch.ms[noise]
        watch.ms[role.name] -= watch.ms[noise]
    last = list(sent.values())[-1]
    watch.bytes["bytes_client_a"] = len(last.header) + len(last.part_a)
    watch.bytes["bytes_client_b"] = len(last.header) + len(last.part_b)
    for between in ("bytes_a_to_b", "bytes_b_to_a"):
        watch.bytes[between] //= len(sent)
    return watch


class _Stopwatch(Servers):
    """Both servers one after the other: the time of each, and the bytes of the messages that validate submissions."""

    ONCE = (Stage.CLOSE, Stage.AGREE, Stage.CHALLENGE, Stage.REVEAL, Stage.OPEN)
    """The stages whose time does not grow with the submissions."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self.bytes = {"bytes_client_a": 0, "bytes_client_b": 0, "bytes_a_to_b": 0, "bytes_b_to_a": 0}

    @contextmanager
    def running(self, party: str) -> Iterator[None]:
        on_the_wall = "client" in party or usable_cores() > 1  # a client multiplies matrices in threads of numpy's own
        clock = time.perf_counter if on_the_wall else time.thread_time
        start = clock()
        yield
        self.ms[party] = self.ms.get(party, 0.0) + 1e3 * (clock() - start)

    def both(self, stage: Stage, step: Callable[[Role], _Result]) -> dict[Role, _Result]:
        results = {}
        for role in Role:
            with self.running(f"once {role.name}" if stage in self.ONCE else role.name):
                results[role] = step(role)
        return results

    def send(self, message: _Message, to: Role) -> _Message:
        if isinstance(message, Check | Masked | NormOpening | Gate):
            self.bytes["bytes_a_to_b" if to is Role.B else "bytes_b_to_a"] += len(encode(message))
        return message


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


def _plain_round(params: Params, updates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same sum and noise in the clear: one trusted server, numpy."""
    noise = np.random.default_rng(0).standard_normal(params.dim)
    total: NDArray[np.float64] = updates.sum(axis=0)
    return total + params.noise_multiplier * params.sensitivity * noise
