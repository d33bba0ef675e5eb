"""Attacks from outside: what a stranger and what an account may not do to a server and to others.

They are run when they are named (`--only 'attacks/*'`, `./dev/test attacks`): they measure, so they want a
release build and a machine that does nothing else.
"""

import resource
import shutil
import subprocess

from ..model import HERE, Failure, group, selects
from ..prepare import VENV

PEERS = HERE / "peers"


def roads():
    """Every address of two networks is this machine's, so that an attacker has as many as it wants."""
    for command in (
        "ip route replace local 198.19.0.0/16 dev lo",
        "ip -6 route replace local 2001:db8::/32 dev lo",
        "ip -6 addr replace 2001:db8:ff:1::1/128 dev lo nodad",
        "sysctl -q -w net.ipv6.ip_nonlocal_bind=1",
    ):
        subprocess.run(command.split(), check=True)
    # Thousands of connections on this side, too.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def attacks(ctx, kind, timeout=600):
    """Runs the attacks of a kind that are wanted; each is a row."""
    roads()
    peer = [VENV / "bin/python", PEERS / "attacks_peer.py", ctx.server.directory, kind]
    names = [
        name for name in ctx.command(*peer, "--list")[1].split() if selects(ctx.patterns, f"{ctx.group.name}/{name}")
    ]
    status, output = ctx.command(*peer, *names, timeout=timeout)
    ctx.report(output, needed=names)
    if status:
        ctx.add("exit", "fail", 0.0, f"status {status}: {output.strip().splitlines()[-1] if output.strip() else ''}")


@group("attacks/strangers", profile="attacks", named_only=True)
def strangers(ctx):
    """What somebody without a password can do."""
    attacks(ctx, "strangers")


@group("attacks/accounts", profile="attacks", named_only=True)
def accounts(ctx):
    """What an account can do to others, with memory for 64 MiB of large buffers."""
    attacks(ctx, "accounts")


@group("attacks/work", profile="attacks", full_only=True, named_only=True)
def work(ctx):
    """Small requests that make much work."""
    attacks(ctx, "work")


@group("attacks/holdings", profile="attacks", full_only=True, named_only=True)
def holdings(ctx):
    """What a client can make the server keep."""
    attacks(ctx, "holdings")


@group("attacks/descriptors", profile="attacks-descriptors", named_only=True)
def descriptors(ctx):
    """The same where the process may have 2,048 descriptors."""
    attacks(ctx, "descriptors")


@group("attacks/sealed", profile="as-shipped", named_only=True)
def sealed(ctx):
    """The same where encryption is required."""
    attacks(ctx, "sealed")


@group("attacks/full", profile="attacks", full_only=True, named_only=True)
def full(ctx):
    """The figures at their full size: guessing for five minutes, 20,000 connections."""
    attacks(ctx, "full", timeout=1200)


@group("attacks/host", profile="attacks", named_only=True)
def host(ctx):
    """A local user: a configuration that others may write is not served."""
    with ctx.check("18-config-writable"):
        config = ctx.server.directory / "frevo.toml"
        for mode in (0o666, 0o664):
            copy = ctx.work / "frevo.toml"
            copy.unlink(missing_ok=True)
            copy.write_text(config.read_text().replace(f"{ctx.server.directory}/state", f"{ctx.work}/state"))
            shutil.copytree(ctx.server.directory / "state", ctx.work / "state", dirs_exist_ok=True)
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
