"""Attacks from the network, by clients with and without an account.

They run only when named (`--only 'attacks/*'`, `./dev/test attacks`): they measure, so they need an optimised
build and an otherwise idle machine.
"""

import pathlib
import resource
import shutil
import subprocess

from ..model import HERE, Failure, group, selects
from ..prepare import VENV

PEERS = HERE / "peers"


def roads():
    """Routes two whole networks to this machine, so that an attacker has any number of addresses."""
    for command in (
        "ip route replace local 198.19.0.0/16 dev lo",
        "ip -6 route replace local 2001:db8::/32 dev lo",
        "ip -6 addr replace 2001:db8:ff:1::1/128 dev lo nodad",
        "sysctl -q -w net.ipv6.ip_nonlocal_bind=1",
    ):
        subprocess.run(command.split(), check=True)
    # The attacker needs thousands of file descriptors.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def attacks(ctx, kind, timeout):
    """Runs the selected attacks of `kind`; each gives one row."""
    roads()
    peer = [VENV / "bin/python", PEERS / "attacks_peer.py", ctx.server.directory, kind]
    names = [
        name for name in ctx.command(*peer, "--list")[1].split() if selects(ctx.patterns, f"{ctx.group.name}/{name}")
    ]
    status, output = ctx.command(*peer, *names, timeout=timeout)
    ctx.report(output, needed=names)
    if status:
        ctx.add("exit", "fail", 0.0, f"status {status}: {output.strip().splitlines()[-1] if output.strip() else ''}")


# Kind of attacks, server profile, only with --full, timeout in seconds, description.
KINDS = [
    ("strangers", "attacks", False, 600, "Attacks of a client without a password."),
    ("accounts", "attacks", False, 600, "Attacks of one account on others; 64 MiB for large buffers."),
    ("work", "attacks", True, 600, "Small requests that cause much work."),
    ("holdings", "attacks", True, 600, "Requests that make the server keep memory or descriptors."),
    ("descriptors", "attacks-descriptors", False, 600, "Attacks on a server with at most 2,048 descriptors."),
    ("sealed", "as-shipped", False, 600, "Attacks on a server that requires encryption."),
    ("full", "attacks", True, 1200, "Full size: password guessing for five minutes, 20,000 connections."),
]

for _kind, _profile, _full, _timeout, _text in KINDS:

    @group(f"attacks/{_kind}", profile=_profile, full_only=_full, named_only=True, doc=_text)
    def _attacks(ctx, kind=_kind, timeout=_timeout):
        attacks(ctx, kind, timeout)


def sockets(folder, names):
    """The sockets of a folder, which cannot be copied: that of the admin interface."""
    return [name for name in names if (pathlib.Path(folder) / name).is_socket()]


@group("attacks/host", profile="attacks", named_only=True)
def host(ctx):
    """A local user: a configuration file that others may write is refused."""
    with ctx.check("18-config-writable"):
        config = ctx.server.directory / "frevo.toml"
        for mode in (0o666, 0o664):
            copy = ctx.work / "frevo.toml"
            copy.unlink(missing_ok=True)
            copy.write_text(config.read_text().replace(f"{ctx.server.directory}/state", f"{ctx.work}/state"))
            shutil.copytree(ctx.server.directory / "state", ctx.work / "state", ignore=sockets, dirs_exist_ok=True)
            copy.chmod(mode)
            serve = subprocess.Popen(
                [ctx.server.program, "serve", "--config", copy, "--listen", "127.0.0.1:4999"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            try:
                said = serve.communicate(timeout=3)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                serve.kill()
                serve.wait()
                raise Failure(f"a configuration of mode {mode:o} is served") from None
            ctx.log.write(said)
            if not serve.returncode or "frevo.toml" not in said:
                raise Failure(f"status {serve.returncode}: {said.strip()[-200:]}")
