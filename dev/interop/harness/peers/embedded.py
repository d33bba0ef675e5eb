"""The server in other programs: the examples of frevo-server, asked by smbclient."""

import contextlib
import os
import subprocess
import tarfile

from ..model import OUT, Failure, group

TOOLS = OUT / "tools/bin"
PORT = 4450


@contextlib.contextmanager
def example(ctx, name, *arguments):
    """Runs an example until the block ends; it must have said that it listens."""
    address = f"{ctx.server.address}:{PORT}"
    child = subprocess.Popen(
        [TOOLS / name, *arguments, address],
        cwd=ctx.work,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=ctx.log,
    )
    try:
        said = child.stdout.readline()
        if not said.startswith("listening"):
            raise Failure(f"{name} said {said!r}")
        yield child
        if child.poll() is not None:
            raise Failure(f"{name} ended with {child.returncode}")
    finally:
        child.terminate()
        child.wait(timeout=30)


def smbclient(ctx, share, *script, password="secret"):
    """Runs commands; returns (status, output)."""
    return ctx.command(
        "smbclient",
        f"//{ctx.server.address}/{share}",
        "-p",
        PORT,
        "-U",
        f"ann%{password}",
        "-c",
        "; ".join(script),
        timeout=60,
    )


@group("embedded")
def embedded(ctx):
    """Examples of frevo-server: a share in memory, a tar archive."""
    with ctx.check("embed"), example(ctx, "embed"):
        content = os.urandom(3_000_000)
        (ctx.work / "up").write_bytes(content)
        status, output = smbclient(ctx, "data", "mkdir d", "put up d/file", "get d/file down", "rename d/file e", "ls")
        if status or " e " not in output or (ctx.work / "down").read_bytes() != content:
            raise Failure(f"status {status}: {output[-250:]}")
        status, output = smbclient(ctx, "data", "ls", password="wrong")
        if "NT_STATUS_LOGON_FAILURE" not in output:
            raise Failure(f"a wrong password: {output[-250:]}")

    with ctx.check("readonly-archive"):
        long = "long/" + "n" * 120
        made = {"top.txt": b"top", "docs/Hello.txt": b"hello", "docs/deep/large": os.urandom(2_000_000), long: b"long"}
        with tarfile.open(ctx.work / "a.tar", "w", format=tarfile.GNU_FORMAT) as archive:
            for name, content in made.items():
                path = ctx.work / "member"
                path.write_bytes(content)
                archive.add(path, name)
        with example(ctx, "readonly_archive", "a.tar"):
            for name, content in made.items():
                status, output = smbclient(ctx, "archive", f"get {name} got")
                if status or (ctx.work / "got").read_bytes() != content:
                    raise Failure(f"{name}: status {status}: {output[-250:]}")
            status, output = smbclient(ctx, "archive", "recurse", "ls")
            missing = [name for name in made if name.rsplit("/", 1)[-1] not in output]
            if status or missing:
                raise Failure(f"not listed: {missing}: {output[-250:]}")
            for refused in ("put a.tar new", "rm top.txt", "mkdir new", "rename top.txt new"):
                _, output = smbclient(ctx, "archive", refused)
                if "NT_STATUS_" not in output:
                    raise Failure(f"{refused} was not refused: {output[-250:]}")
            status, output = smbclient(ctx, "archive", "get docs/HELLO.TXT got")
            if status or (ctx.work / "got").read_bytes() != b"hello":
                raise Failure(f"after what was refused: {output[-250:]}")
