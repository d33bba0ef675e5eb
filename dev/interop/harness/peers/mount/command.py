"""The command line of `frevo mount`: background, options of mount(8), errors."""

import contextlib
import os
import subprocess
from pathlib import Path

from ...model import Failure
from .fixture import equal, until


def background(ctx):
    """Without --foreground the command returns when the share is mounted; the mount lasts until the unmount."""
    server = ctx.server
    url = f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
    folder, log = ctx.work / "behind", ctx.work / "behind.log"
    folder.mkdir()
    helper = ctx.work / "mount.frevo"
    helper.symlink_to(os.environ["FREVO_CLIENT"])
    program = os.environ["FREVO_CLIENT"]
    env = {"FREVO_PASSWORD": server.password}
    options = ["-o", f"rw,_netdev,noexec,uid=7,file_mode=0640,log_file={log}"]
    status, output = ctx.command(helper, url, folder, "-f", *options, env=env)
    if status or output.strip() or os.path.ismount(folder):
        raise Failure(f"mount -f: status {status}: {output.strip()[-200:]}")
    for command in (
        [program, "mount", "--noexec", "--uid", "7", "--file-mode", "0640", "--log-file", log, url, folder],
        [helper, url, folder, *options],
    ):
        status, output = ctx.command(*command, env=env)
        if status or output.strip() or not os.path.ismount(folder):
            raise Failure(f"status {status}: {output.strip()[-200:]}")
        try:
            (folder / "behind").write_bytes(b"x")
            found = os.stat(folder / "behind")
            equal(os.statvfs(folder).f_flag & os.ST_NOEXEC, os.ST_NOEXEC, "noexec")
            if server.kind != "frevo":
                equal((found.st_uid, found.st_mode & 0o777), (7, 0o640), "owner and mode")
            pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and str(folder) in command_of(p)]
            equal(len(pids), 1, "programs that are left")
            equal(os.getsid(pids[0]), pids[0], "a session of its own")
        finally:
            subprocess.run(["fusermount3", "-u", folder], check=True)
        until("it has ended", lambda pid=pids[0]: not os.path.exists(f"/proc/{pid}"))
        os.unlink(server.path / "behind")
        log.unlink()
    status, output = ctx.command(program, "mount", url + "/nowhere", folder, env=env)
    if status != 6 or "no such file or directory" not in output:
        raise Failure(f"a missing folder: status {status}: {output.strip()[-200:]}")


def command_of(process):
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def helpful(ctx):
    """A mount that fails says why."""
    server = ctx.server
    url = f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
    full = ctx.work / "full"
    (full / "x").mkdir(parents=True)
    empty = ctx.work / "vacant"
    empty.mkdir()
    cases = [
        ([url, ctx.work / "missing"], 6, "does not exist", None),
        ([url, full], 1, "not empty", None),
        ([url.replace("/share", "/nothing"), empty], 6, "no share of that name", None),
        ([url + "/nowhere", empty], 6, "no such file or directory", None),
        ([url, empty], 4, "user name or password", "wrong"),
        ([f"smb://x@{server.address}:9/share", empty], 5, "refused", None),
    ]
    for arguments, code, text, password in cases:
        env = {"FREVO_PASSWORD": password or server.password}
        status, output = ctx.command(os.environ["FREVO_CLIENT"], "mount", *arguments, env=env)
        if status != code or text not in output:
            raise Failure(f"wanted {code} and {text!r}, got {status}: {output.strip()[-200:]}")
