"""Every number of the protocol for given parameters: its value, and where it comes from."""

import math
from dataclasses import dataclass

from precad.mpc.field import P
from precad.mpc.projection import ROUND_ROWS, ROWS
from precad.mpc.wires import LARGE, LONG, SHORT
from precad.protocol import submission
from precad.protocol.norm_proof import V_BITS
from precad.protocol.params import Params, Validation
from precad.protocol.sizes import sizes
from precad.protocol.triples.dealing import Plan


@dataclass(frozen=True)
class Line:
    """One number."""

    key: str
    name: str
    value: int | float
    shown: str
    why: str


def explain(params: Params) -> list[Line]:
    """The numbers of a task, top-down: the grid, the noise, the validation, the bytes."""
    return [*_grid(params), *_validation(params), *_bytes(params)]


def _grid(params: Params) -> list[Line]:
    f = params.fractional_bits
    limit = P // 2
    largest = params.clients * math.isqrt(params.squared_bound) + math.ceil(40 * math.sqrt(2) * params.noise_std)
    return [
        _number("p", "field", P, "2^61 − 1"),
        _number("fractional_bits", "f", f, "the largest f ≤ 16 with τ ≤ √p/16 (PROTOCOL §3)"),
        _number("squared_bound", "S", params.squared_bound, "⌊(C·2^f)²⌋"),
        _number("sensitivity", "sensitivity", params.sensitivity, "R' = R + (√d + 1)·2^-f, or C for unit client (§7a)"),
        _number("noise_std", "noise", params.noise_std, "each server's: σ·sensitivity·2^f, or 1/√2 of it (§6)"),
        _number("headroom", "headroom", limit / largest, "p/2 over n·C·2^f plus 40 deviations of noise: above 1 (§3)"),
    ]


def _validation(params: Params) -> list[Line]:
    if params.validation is Validation.NONE:
        return []
    shape = submission.proof_shape(params)
    window = _number("window", "τ", shape.window, "2^⌈log2(6.75·√S + 1)⌉: projections of honest vectors lie in [−τ, τ)")
    if params.validation is Validation.TRIPLES:
        plan = Plan(params.dim, params.clients)
        return [
            window,
            _number("rows", "projections", ROUND_ROWS, "rows of Z, drawn after closing: nothing to search offline"),
            _power("online_soundness", "wrap-around passes", 2.0**-ROUND_ROWS, "½^64 (Lemmas 2 and 3)"),
            _number("exchanges", "exchanges", plan.exchanges, "masks, norms, 6 + 7 levels of gates, the verdict"),
        ]
    identities = f"1/p + 2m/(p−m) + 2^-{V_BITS} (Lemma 1)"
    return [
        window,
        _number("rows", "projections", ROWS, "rows of Z, fixed by the commitments: searched offline, if at all"),
        _number("norm_bits", "w", shape.norm_bits, "bits of S − x·x: bitlength(S)"),
        _number("projection_bits", "k", shape.projection_bits, "bits of u_j + τ: 2^k = 2τ"),
        _number("bits", "L", shape.bits, "w + 128·k bits in all"),
        _number("wire", "m", shape.wire, f"entries of a wire: {SHORT}, or {LONG} from d = {LARGE:,} on"),
        _number("wires", "wires", shape.entry_wires + shape.bit_wires, "⌈d/m⌉ + ⌈L/m⌉, each opened at one point r"),
        _power("online_soundness", "false proof passes", shape.online_soundness, identities),
        _power("offline_soundness", "wrap-around passes", shape.offline_soundness, "max(½, 0.34)^128 (Lemmas 2 and 3)"),
        _power("honest_redraw", "honest client redraws", shape.honest_redraw, "128·2·exp(−2·(τ−1)²/S) (Lemma 4)"),
    ]


def _bytes(params: Params) -> list[Line]:
    """Of messages whole, for a client with a name of up to eight bytes."""
    size = sizes(params)
    times = f"{size.part_a / (4 * params.dim):.3f} times"
    lines = [
        _number("bytes_close", "close", size.close, "A ↔ B: 32 bytes for each of n submissions"),
        _number("bytes_nonce", "nonce, tally", size.nonce, "A ↔ B, each: D and a nonce; digests of what to open"),
        _number("bytes_header", "header", size.header, "client → both: what its submission is"),
        _number("bytes_part_a", "part A", size.part_a, f"client → A: {times} a float32 update"),
        _number("bytes_part_b", "part B", size.part_b, "client → B: a seed, a salt, a commitment"),
    ]
    if params.validation is Validation.PROOF:
        why = "A ↔ B, for each submission: 8·(d + L)/m and a few words"
        lines.append(_number("bytes_check", "check", size.validation, why))
    if params.validation is Validation.TRIPLES:
        why = "A ↔ B, for each of n submissions: x − a and masked bits"
        lines.append(_number("bytes_gates", "gates", size.validation, why))
        lines.append(_number("bytes_deal", "deal", size.deal, "dealer → B, for each of n submissions; A gets a seed"))
    return [*lines, _number("bytes_noisy_share", "noisy share", size.noisy_share, "A ↔ B, once a round")]


def _number(key: str, name: str, value: int | float, why: str) -> Line:
    return Line(key, name, value, f"{value:,}" if isinstance(value, int) else f"{value:,.6g}", why)


def _power(key: str, name: str, value: float, why: str) -> Line:
    return Line(key, name, value, f"2^{math.log2(value):.1f}" if value else "0", why)
