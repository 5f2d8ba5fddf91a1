"""systemd units for the two servers: each runs as a user of its own that can write its own folder and nothing else.

The numbers' kernels are compiled when they are first used, so that memory cannot be both refused and compiled into:
``MemoryDenyWriteExecute`` is left out on purpose, and the compiler's cache has a folder.
"""

from precad.protocol.states import Role

PROGRAMS = "/opt/precad/bin"
"""Where a unit expects the programs of precad, and at A those of Flower and the app's libraries."""

_COMMANDS = {
    Role.B: "precad server --config b.toml",
    Role.A: "flower-superlink --host 0.0.0.0 --port 8000 --database superlink.db --enable-supernode-auth"
    " --ssl-certfile superlink.pem --ssl-keyfile superlink.key --ssl-ca-certfile superlink.pem",
}

_ENVIRONMENT = {
    Role.B: {},
    Role.A: {
        "FLWR_HOME": "/var/lib/precad-{name}/flwr",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    },
}

_UNIT = """# Server {role} of a task of precad. Its folder, /var/lib/precad-{name}, is this kit with the keys in it.
[Unit]
Description=precad server {role} ({name})
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User=precad
StateDirectory=precad-{name}
StateDirectoryMode=0700
CacheDirectory=precad-{name}
CacheDirectoryMode=0700
WorkingDirectory=/var/lib/precad-{name}
{environment}
ExecStart={programs}/{command}
Restart=on-failure
RestartSec=10
TimeoutStopSec=90
UMask=0077
LimitCORE=0
MemorySwapMax=0

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def unit(role: Role, name: str) -> str:
    """The unit of a server, to be put into /etc/systemd/system."""
    variables = {"NUMBA_CACHE_DIR": "/var/cache/precad-{name}"} | _ENVIRONMENT[role]
    environment = "\n".join(f"Environment={key}={value.format(name=name)}" for key, value in variables.items())
    return _UNIT.format(role=role.name, name=name, environment=environment, programs=PROGRAMS, command=_COMMANDS[role])
