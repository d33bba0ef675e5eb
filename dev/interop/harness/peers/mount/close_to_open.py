"""Close-to-open between two mounts: a program that opens a file sees what the other mount had closed before."""

import os

from .fixture import equal, refused


def closed_is_seen(one, two, rounds):
    """Writes and closes in `one`, then opens and reads in `two`. Fails if any read is stale."""

    def write(name, text, mode="w"):
        with open(one / name, mode) as file:
            file.write(text)

    def same_length(round):
        write("closed", f"{round:08}")
        return f"{round:08}"

    def other_length(round):
        text = f"{round}" * (1 + round % 50)
        write("closed", text)
        return text

    def in_place(round):
        write("closed", f"{round:08}", "r+")
        return f"{round:08}"

    def replaced(round):
        write("closed.new", f"{round:08}")
        os.rename(one / "closed.new", one / "closed")
        return f"{round:08}"

    for change in (same_length, other_length, in_place, replaced):
        write("closed", "0" * 8)
        stale = []
        for round in range(rounds):
            text = change(round)
            if (seen := (two / "closed").read_text()) != text:
                stale.append((round, seen[:16], text[:16]))
        equal(stale[:3], [], f"stale reads of {rounds} after {change.__name__}")
    with open(two / "closed") as kept:
        replaced(1)
        equal((two / "closed").read_text(), "00000001", "the new file, while the old one is open")
        equal(kept.read(), f"{rounds - 1:08}", "the old file through its handle")
    os.unlink(one / "closed")
    refused(2, lambda: (two / "closed").read_bytes())


def read_only(here, there):
    """Read-only files go like any other in a directory that may be written."""
    for name in ("one", "two", "three"):
        (here / name).write_text(name)
        os.chmod(here / name, 0o444)
        equal(os.stat(here / name).st_mode & 0o222, 0, f"the mode of {name}")
    os.unlink(here / "one")
    (here / "new").write_text("new")
    os.rename(here / "new", here / "two")
    equal((here / "two").read_text(), "new", "in place of a read-only file")
    with open(here / "three") as kept:
        os.unlink(here / "three")
        equal(kept.read(), "three", "a removed read-only file that is open")
    os.unlink(here / "two")
    left = [name for name in os.listdir(there) if name in ("one", "two", "three") or name.startswith(".frevo")]
    equal(left, [], "read-only files on the server")
    refused(36, lambda: (here / ("x" * 256)).write_bytes(b""))
    os.mkdir(here / "moved")
    with open(here / "moved" / "open", "w") as kept:
        kept.write("data")
        kept.flush()
        # SMB refuses to rename a folder in which the same client has a file open: Linux gets EBUSY
        # (16) from Frevo and from smbd.
        refused(16, lambda: os.rename(here / "moved", here / "elsewhere"))
    os.unlink(here / "moved" / "open")
    os.rmdir(here / "moved")
