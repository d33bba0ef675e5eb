"""Small requests that cause much work: none may delay the other clients of its core."""

import os
import struct
import time

import raw

from .link import quietly
from .scene import Slowest, demand

STALL = 0.25


def patterns(scene, say):
    """Listing 4,000 long names by patterns that backtrack much."""
    path = scene.folder("patterns")
    for number in range(4000):
        os.mknod(path / (f"{number:04}" + "a" * 240), 0o100666)
    with scene.siege() as siege:
        link, slowest = scene.member("198.19.220.1", timeout=30), Slowest()
        folder = link.open_directory("patterns")
        for pattern in ("*a" * 120 + "b", "*?" * 100 + "b", "<a" * 100 + "b", "*" + "?" * 250 + "*"):
            for _ in range(3):
                with slowest:
                    link.call(raw.QUERY_DIRECTORY, raw.directory_body(folder, 12, pattern, flags=0x10 | 1))
        say(f"a listing took at most {slowest}")
        siege.others_wait(say, STALL)


def deep_paths(scene, say):
    """Compounds of 100 CREATEs, each with a path of 700 components."""
    link = scene.member("198.19.220.2", timeout=30)
    path = ""
    fd = os.open(scene.folder("deep"), os.O_RDONLY)
    for _ in range(700):
        os.mkdir("a", dir_fd=fd)
        inner = os.open("a", os.O_RDONLY, dir_fd=fd)
        os.fchmod(inner, 0o777)
        os.close(fd)
        fd = inner
        path += "\\a"
    os.close(fd)
    with scene.siege() as siege:
        link.gain_credits(400)
        slowest = Slowest()
        for number in range(6):
            body = raw.create_body("deep" + path + f"\\absent-{number}", disposition=1)
            with slowest:
                ids = link.send_compound([(raw.CREATE, body, 0)] * 100)
                for one in ids:
                    quietly(link.await_answer, one)
        say(f"a compound took at most {slowest}")
        siege.others_wait(say, STALL)


def lock_storm(scene, say):
    """60,000 locks of one file on top of each other, then LOCKs of 2,800 elements that fail at the last."""
    with scene.siege() as siege:
        link = scene.member("198.19.220.3", timeout=60)
        link.gain_credits(400)
        file = link.open("locked")
        slowest, taken = Slowest(), 0
        for round_ in range(22):
            # Shared locks that all overlap and have different lengths.
            locks = [(0, (1 << 40) + round_ * 2700 + n, 1 | 0x10) for n in range(2700)]
            with slowest:
                answer = quietly(link.call, raw.LOCK, raw.lock_body(file, locks))
            if not answer or answer.status != 0:
                break
            taken += len(locks)
        other = scene.member("198.19.220.4", timeout=60)
        theirs = other.open("locked")
        for _ in range(6):
            locks = [(n, (1 << 39) + n, 1 | 0x10) for n in range(2700)] + [(5, 100, 2 | 0x10)]
            with slowest:
                quietly(other.call, raw.LOCK, raw.lock_body(theirs, locks))
        link.close()
        say(f"{taken} locks, a LOCK at most {slowest}")
        siege.others_wait(say, STALL)


def watch_trees(scene, say):
    """Watching a tree of 6,000 directories, 30 times."""
    path = scene.folder("trees")
    for number in range(6000):
        os.mkdir(path / f"{number % 60:02}-{number}")
    with scene.siege() as siege:
        link, slowest = scene.member("198.19.220.5", timeout=30), Slowest()
        link.gain_credits(200)
        for _ in range(30):
            folder = link.open_directory("trees")
            with slowest:
                one = link.send(raw.CHANGE_NOTIFY, raw.notify_body(folder, flags=1))
                link.await_answer(one, final=False)
            link.shut(folder)
        say(f"a watch took at most {slowest}")
        siege.others_wait(say, STALL)


def many_streams(scene, say, count=4000):
    """A file with thousands of named streams: they are listed, opened and missed."""
    with scene.siege() as siege:
        link, slowest, made = scene.member("198.19.220.6", timeout=60), Slowest(), 0
        link.gain_credits(400)
        for number in range(count):
            file = quietly(link.open, f"streams:s{number:05}")
            if not file:
                break
            quietly(link.shut, file)
            made += 1
        file = link.open("streams")
        for number in range(20):
            with slowest:
                quietly(link.call, raw.QUERY_INFO, raw.query_body(file, 1, 22, length=1 << 20), charge=16)
                quietly(link.call, raw.CREATE, raw.create_body(f"streams:absent{number}", disposition=1))
        say(f"{made} streams, listing and missing one took at most {slowest}")
        siege.others_wait(say, STALL)


def sparse_ranges(scene, say):
    """QUERY_ALLOCATED_RANGES of a file with 250,000 extents."""
    path = scene.directory / "share" / "sparse"
    with open(path, "wb") as file:
        for number in range(250_000):
            os.pwrite(file.fileno(), b"x", number * 8192)
    os.chmod(path, 0o666)
    with scene.siege() as siege:
        link, slowest = scene.member("198.19.220.7", timeout=60), Slowest()
        link.gain_credits(400)
        file = link.open("sparse")
        link.call(raw.IOCTL, raw.ioctl_body(file, 0x900C4, b"\1")).must()
        for _ in range(5):
            with slowest:
                answer = link.call(
                    raw.IOCTL, raw.ioctl_body(file, 0x940CF, struct.pack("<QQ", 0, 1 << 40), most=8 << 20), charge=128
                )
                told = struct.unpack_from("<I", answer.body, 36)[0] // 16 if len(answer.body) > 40 else 0
        say(f"{answer.status:#x}, {told} ranges, an answer took at most {slowest}")
        siege.others_wait(say, STALL)


def renames(scene, say):
    """Renames of a directory while a client has thousands of files open."""
    scene.folder("moved")
    with scene.siege() as siege:
        link, opened = scene.member("198.19.220.8", timeout=60), 0
        for number in range(4000):
            if not quietly(link.open, f"elsewhere-{number}"):
                break
            opened += 1
        slowest = Slowest()
        for number in range(100):
            folder = link.open("moved" if number % 2 == 0 else "moved2", access=0x1F01FF, options=1, disposition=1)
            with slowest:
                link.rename(folder, "moved2" if number % 2 == 0 else "moved")
        say(f"{opened} opens, a rename at most {slowest}")
        siege.others_wait(say, STALL)


def cancel_storm(scene, say):
    """1,000 waiting requests and frames of 120 CANCELs for each other's ids."""
    with scene.siege() as siege:
        link = scene.member("198.19.220.9", timeout=30)
        link.gain_credits(2000)
        waiting = []
        for _ in range(1000):
            folder = quietly(link.open_directory)
            if not folder:
                break
            one = link.send(raw.CHANGE_NOTIFY, raw.notify_body(folder))
            waiting.append(one)
        frames = 0
        while frames < 200:
            frames += 1
            header = link.header(raw.CANCEL, 0, 0, 1 << 40, link.tree_id, link.session_id)
            one = link.sign(header[:20] + struct.pack("<I", 72) + header[24:] + struct.pack("<HHI", 4, 0, 0))
            last = link.sign(header + struct.pack("<HH", 4, 0))
            if quietly(link.send_frame, one * 119 + last) is None and link.ends(0.01):
                break
        say(f"{len(waiting)} waiting, {frames} frames of CANCELs")
        siege.others_wait(say, STALL)


def offloads(scene, say):
    """300 offloaded copies of 64 MiB at a time."""
    with scene.siege() as siege:
        link = scene.member("198.19.220.10", timeout=60)
        link.gain_credits(1000)
        path = scene.directory / "share" / "source"
        with open(path, "wb") as file:
            file.write(os.urandom(1 << 20) * 64)
        (scene.directory / "share" / "target").write_bytes(b"")
        os.truncate(scene.directory / "share" / "target", 64 << 20)
        for name in ("source", "target"):
            os.chmod(scene.directory / "share" / name, 0o666)
        time.sleep(0.1)
        source, target = link.open("source"), link.open("target")
        answer = link.call(
            raw.IOCTL, raw.ioctl_body(source, 0x94264, struct.pack("<IIIIQQ", 32, 0, 60000, 0, 0, 64 << 20), most=1024)
        )
        offset, length = struct.unpack_from("<II", answer.body, 32)
        token = answer.message[offset : offset + length][16:528]
        begun = 0
        if answer.status == 0:
            for _ in range(300):
                link.send(
                    raw.IOCTL,
                    raw.ioctl_body(target, 0x98268, struct.pack("<IIQQQ", 544, 0, 0, 64 << 20, 0) + token, most=1024),
                )
                begun += 1
            time.sleep(2)
        say(f"OFFLOAD_READ {answer.status:#x}, {begun} copies begun")
        siege.others_wait(say, STALL)
        siege.newcomers_served(say)
        link.close()
        time.sleep(1)
        demand(not siege.honest.lost, "the honest client was disconnected")


ATTACKS = [
    ("20-patterns", patterns),
    ("21-deep-paths", deep_paths),
    ("22-lock-storm", lock_storm),
    ("23-watch-trees", watch_trees),
    ("24-streams", many_streams),
    ("25-sparse-ranges", sparse_ranges),
    ("26-renames", renames),
    ("27-cancel-storm", cancel_storm),
    ("28-offloads", offloads),
]
