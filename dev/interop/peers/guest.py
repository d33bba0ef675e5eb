"""Shared by the programs that check a server in a guest: its shell, its shares, and the host's clients."""

import os
import struct
import subprocess
import time
from pathlib import Path

import raw

JOBS, KIND = Path(os.environ["GUEST_JOBS"]), os.environ["GUEST_SERVER"]
ADDRESS, PORT, PASSWORD = os.environ["SMB_ADDR"], int(os.environ["SMB_PORT"]), os.environ["SMB_PASS"]
# The user IDs of dev/interop/accounts.
USERS = {"smbuser": 50001, "smbuser2": 50002}
# Only an administrator sees the quotas of other users. On smbd the administrator is root.
ADMIN = "smbuser2" if KIND == "frevo" else "root"
MISSING = (
    dict(line.split(": ", 1) for line in (JOBS / "missing").read_text().splitlines() if ": " in line)
    if (JOBS / "missing").exists()
    else {}
)

# The NTSTATUS values that the checks name.
STATUS = {
    "SUCCESS": 0,
    "NO_MORE_ENTRIES": 0x8000001A,
    "INVALID_INFO_CLASS": 0xC0000003,
    "INVALID_PARAMETER": 0xC000000D,
    "INVALID_DEVICE_REQUEST": 0xC0000010,
    "ACCESS_DENIED": 0xC0000022,
    "OBJECT_NAME_NOT_FOUND": 0xC0000034,
    "PENDING": 0x103,
    "DISK_FULL": 0xC000007F,
    "NOT_SAME_DEVICE": 0xC00000D4,
    "CANNOT_DELETE": 0xC0000121,
    "MEDIA_WRITE_PROTECTED": 0xC00000A2,
    "NOT_SUPPORTED": 0xC00000BB,
    "UNEXPECTED_IO_ERROR": 0xC00000E9,
    "IO_DEVICE_ERROR": 0xC0000185,
    "NO_MATCH": 0xC0000272,
    "VOLUME_NOT_UPGRADED": 0xC000029C,
}
NAMES = {value: name for name, value in STATUS.items()}


def has(disk, *checks):
    """Returns True if the guest has the disk; otherwise prints a skip for each named check."""
    for name in checks if disk in MISSING else ():
        print(f"skip {name} 0.0 {MISSING[disk] or 'the guest cannot make ' + disk}", flush=True)
    return disk not in MISSING


def sh(script, timeout=30):
    """Runs a script in the guest as root, in the folder of the shares; returns its output."""
    number = sum(1 for name in os.listdir(JOBS) if name.isdigit()) + 1
    fresh = JOBS / f"{number}.new"
    fresh.write_text("cd /mnt/srv\n" + script + "\n")
    fresh.rename(JOBS / str(number))
    done, end = JOBS / f"{number}.rc", time.monotonic() + timeout
    while not (done.exists() and done.read_text().endswith("\n")):
        if time.monotonic() > end:
            raise TimeoutError(f"the guest did not finish within {timeout} s: {script[:100]}")
        time.sleep(0.01)
    said = (JOBS / f"{number}.out").read_text(errors="replace")
    if status := int(done.read_text()):
        raise RuntimeError(f"{script.strip()[:100]}: status {status}: {said.strip()[-200:]}")
    return said


def run(*args, timeout=60, cwd=None):
    """Runs a client on the host; returns (status, output)."""
    done = subprocess.run(
        [str(a) for a in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        cwd=cwd,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def smbclient(share, user, *commands):
    """Returns smbclient's output for these commands."""
    return run("smbclient", f"//{ADDRESS}/{share}", "-p", PORT, "-U", f"{user}%{PASSWORD}", "-c", "; ".join(commands))[
        1
    ]


def frevo(verb, share, path, *args, user="smbuser"):
    """Runs Frevo's client; returns (status, output)."""
    url = f"smb://{user}@{ADDRESS}:{PORT}/{share}/{path}"
    env = {**os.environ, "FREVO_PASSWORD": PASSWORD}
    done = subprocess.run(
        [os.environ["FREVO_CLIENT"], verb, *[str(a).replace("URL", url) for a in args]],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def tree(share, user="smbuser"):
    """Returns a raw client in a share."""
    return raw.Tree(ADDRESS, PORT, user, PASSWORD, share)


def same(found, wanted, what=""):
    """Fails unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{what or 'found'}: {found!r}, wanted {wanted!r}")


def status(answer, *wanted):
    """Fails unless an answer has one of these statuses; returns the answer."""
    if answer.status not in [STATUS[name] for name in wanted]:
        raise AssertionError(
            f"command {answer.command}: {NAMES.get(answer.status, hex(answer.status))}, wanted {' or '.join(wanted)}"
        )
    return answer


def write(t, file, offset, data, *wanted, flags=0):
    """Sends a WRITE and fails unless it gets one of these statuses."""
    charge = max(1, (len(data) + 65535) // 65536)
    return status(
        t.client.call(raw.WRITE, raw.write_body(file, offset, data, flags), charge=charge), *wanted or ("SUCCESS",)
    )


def space(t):
    """Returns FileFsFullSizeInformation of a share's root in bytes: total, available to the caller, free."""
    root = t.open("", access=0x100081, options=1)
    total, caller, free, sectors, sector = struct.unpack("<QQQII", t.query(root, 2, 7))
    t.close(root)
    return tuple(n * sectors * sector for n in (total, caller, free))
