"""Memory: ten million parameters within 1 GiB for each party, and no growth with the number of clients."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import sys
from pathlib import Path
import numpy as np
from precad.protocol.messages import Nonce
from precad.mpc.secret import Secret
from precad.protocol import states, submission
from precad.protocol.states import Role
from tests.protocol.drivers import SECRETS, make_round

folder, dim, clients = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
round_ = make_round(dim=dim)
names = [f"client-{i}" for i in range(clients)]

def peak_mib():
    # of this program alone: getrusage would count the process that started it
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
"""

CLIENT = """
x = np.random.default_rng(0).integers(-300, 300, dim)
for name in names:
    sent = submission.submit(round_, name, x)
    for part in ("header", "part_a", "part_b"):
        (folder / f"{name}.{part}").write_bytes(getattr(sent, part))
print(peak_mib())
"""

SERVER = """
role = Role[sys.argv[4]]
part = "part_a" if role is Role.A else "part_b"
state = states.Collecting(round_, role, frozenset(names))
headers = []
for name in names:
    header = (folder / f"{name}.header").read_bytes()
    headers.append(states.receive(state, name, header, (folder / f"{name}.{part}").read_bytes(), None).header)
closing, close = states.close(state, headers)
agreed, nonce = states.agree(closing, close, SECRETS[role].nonce)
checking = states.challenge(agreed, Nonce(agreed.closed, SECRETS[role.other].nonce))
for name in names:
    states.check(checking, states.restore(checking, name, (folder / f"{name}.{part}").read_bytes()))
judged = states.conclude(checking, names)
parts = (states.restore(judged, name, (folder / f"{name}.{part}").read_bytes()) for name in names)
tallied, tally = states.aggregate(judged, parts, Secret.fresh())
print(peak_mib())
"""


def peak_mib(code: str, folder: Path, *arguments: object) -> float:
    command = [sys.executable, "-c", textwrap.dedent(PRELUDE + code), str(folder), *map(str, arguments)]
    root = Path(__file__).parent.parent.parent
    return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)


@pytest.mark.long
def test_ten_million_parameters_fit_in_one_gibibyte(tmp_path: Path) -> None:
    dim = 10_000_000
    assert peak_mib(CLIENT, tmp_path, dim, 1) < 1024
    for role in ("A", "B"):
        assert peak_mib(SERVER, tmp_path, dim, 1, role) < 1024


@pytest.mark.long
@pytest.mark.parametrize("role", ["A", "B"])
def test_a_servers_memory_does_not_grow_with_the_clients(tmp_path: Path, role: str) -> None:
    """Forty more clients of 1.6 MB each; less than ten vectors more."""
    dim = 200_000
    peak_mib(CLIENT, tmp_path, dim, 45)
    few, many = (peak_mib(SERVER, tmp_path, dim, count, role) for count in (5, 45))
    assert many - few < 10 * 8 * dim / 2**20
