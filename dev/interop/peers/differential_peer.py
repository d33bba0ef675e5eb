"""One seeded stream of requests to two servers, answer by answer compared.

    differential_peer.py ADDRESS OTHER SHARE SEED REQUESTS OUT

OUT is JSON: {"requests": n, "differences": {name: [count, example]}}.  The stream is cut into scenes, each in a folder
of its own that both servers are given alike; a scene ends at a difference that leaves them in different states.
"""

import collections
import json
import os
import random
import struct
import sys

import raw
from raw import Client

STATUS = {
    0: "OK",
    0xC0000002: "NOT_IMPLEMENTED",
    0xC0000003: "INVALID_INFO_CLASS",
    0xC0000004: "INFO_LENGTH_MISMATCH",
    0xC0000008: "INVALID_HANDLE",
    0xC000000D: "INVALID_PARAMETER",
    0xC000000F: "NO_SUCH_FILE",
    0xC0000010: "INVALID_DEVICE_REQUEST",
    0xC0000011: "END_OF_FILE",
    0xC0000022: "ACCESS_DENIED",
    0xC0000023: "BUFFER_TOO_SMALL",
    0xC0000033: "OBJECT_NAME_INVALID",
    0xC0000034: "OBJECT_NAME_NOT_FOUND",
    0xC0000035: "OBJECT_NAME_COLLISION",
    0xC000003A: "OBJECT_PATH_NOT_FOUND",
    0xC0000043: "SHARING_VIOLATION",
    0xC0000054: "FILE_LOCK_CONFLICT",
    0xC0000055: "LOCK_NOT_GRANTED",
    0xC0000056: "DELETE_PENDING",
    0xC000007E: "RANGE_NOT_LOCKED",
    0xC00000BA: "FILE_IS_A_DIRECTORY",
    0xC00000BB: "NOT_SUPPORTED",
    0xC0000101: "DIRECTORY_NOT_EMPTY",
    0xC0000103: "NOT_A_DIRECTORY",
    0xC0000121: "CANNOT_DELETE",
    0xC0000128: "FILE_CLOSED",
    0xC00000A5: "BAD_IMPERSONATION_LEVEL",
    0x80000005: "BUFFER_OVERFLOW",
    0x80000006: "NO_MORE_FILES",
    0x8000001A: "NO_MORE_ENTRIES",
    0xC000004F: "EAS_NOT_SUPPORTED",
    0xC0000052: "NO_EAS_ON_FILE",
    0x80000013: "INVALID_EA_NAME",
    0xC0000061: "PRIVILEGE_NOT_HELD",
    0xC0000275: "NOT_A_REPARSE_POINT",
    0xC00000D4: "NOT_SAME_DEVICE",
    0xC000007F: "DISK_FULL",
    0xC000003B: "OBJECT_PATH_SYNTAX_BAD",
    0x103: "PENDING",
    0xC0000016: "MORE_PROCESSING",
    0xC000000E: "NO_SUCH_DEVICE",
    0x10B: "NOTIFY_CLEANUP",
    0x10C: "NOTIFY_ENUM_DIR",
    0xC00001A1: "INVALID_LOCK_RANGE",
    0xC00000A2: "MEDIA_WRITE_PROTECTED",
    0xC0000024: "OBJECT_TYPE_MISMATCH",
    0xC0000077: "INVALID_ACL",
    0xC0000059: "UNKNOWN_REVISION",
    0xC0000079: "INVALID_SECURITY_DESCR",
    0xC0000904: "FILE_NOT_AVAILABLE",
    0xC0000106: "NAME_TOO_LONG",
}


def said(status):
    return STATUS.get(status, f"{status:#010x}")


NAMES = {  # what it is: name
    "file": "a",
    "folder": "d",
    "missing": "new",
    "missing-parent": "none\\x",
    "through-file": "a\\x",
    "in-folder": "d\\1",
    "other-case": "A",
    "wild": "a*",
    "slash": "d/1",
    "stream-data": "a::$DATA",
    "leading-backslash": "\\a",
    "trailing-backslash": "d\\",
    "double-backslash": "d\\\\1",
    "dot": ".",
    "dots": "d\\..\\a",
    "quote": 'a"',
    "pipe": "a|b",
    "control": "a\x01",
    "long": "n" * 256,
    "longest": "m" * 255,
    "trailing-space": "s ",
    "trailing-dot": "t.",
    "bad-type": "a::$BAD",
    "empty-stream": "a:",
    "index": "d::$INDEX_ALLOCATION",
    "stream": "a:s",
    "new-stream": "a:other",
    "folder-stream": "d:s",
    "surrogate": b"\x00\xd8x\x00",
}
ACCESSES = [
    0,
    1,
    2,
    4,
    0x20,
    0x80,
    0x100,
    0x10000,
    0x20000,
    0x40000,
    0x80000,
    0x100000,
    0x1F01FF,
    0x120089,
    0x12019F,
    0x80000000,
    0x40000000,
    0x20000000,
    0x10000000,
    0x02000000,
    0x02000080,
    0x01000000,
    0x00200000,
    0x04000000,
    0x110080,
    0x120196,
]
OPTIONS = [
    0,
    0,
    0,
    1,
    0x40,
    0x1000,
    0x1001,
    0x1040,
    0x41,
    2,
    4,
    8,
    0x10,
    0x20,
    0x30,
    0x80,
    0x100,
    0x200,
    0x400,
    0x800,
    0x2000,
    0x4000,
    0x8000,
    0x10000,
    0x100000,
    0x200000,
    0x400000,
    0x800000,
    0x1000000,
    0x80000000,
]
ATTRIBUTES = [0, 0, 1, 2, 4, 0x10, 0x20, 0x80, 0x100, 0x200, 0x1000, 0x4000, 0x37, 0x8, 0x40, 0x10000, 0x80000000]
LENGTHS = [0, 1, 2, 3, 4, 7, 8, 12, 16, 23, 24, 25, 32, 40, 41, 56, 64, 100, 104, 1000, 65536]
OFFSETS = [0, 1, 4999, 5000, 5001, 4096, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, (1 << 63) - 10]

# FSCTLs whose answer does not hang on the disk below.
FSCTLS = {
    0x90064: "SET_COMPRESSION?",
    0x9003C: "GET_COMPRESSION",
    0x900C0: "CREATE_OR_GET_OBJECT_ID",
    0x900A8: "GET_REPARSE_POINT",
    0x900AC: "DELETE_REPARSE_POINT",
    0x900C4: "SET_SPARSE",
    0x980C8: "SET_ZERO_DATA",
    0x940CF: "QUERY_ALLOCATED_RANGES",
    0x140078: "SRV_REQUEST_RESUME_KEY",
    0x1440F2: "SRV_COPYCHUNK",
    0x144064: "SRV_ENUMERATE_SNAPSHOTS",
    0x60194: "DFS_GET_REFERRALS",
    0x11400C: "PIPE_PEEK",
    0x110018: "PIPE_WAIT",
    0x11C017: "PIPE_TRANSCEIVE",
    0x1401D4: "LMR_REQUEST_RESILIENCY",
    0x90300: "UNKNOWN",
    0x98344: "DUPLICATE_EXTENTS",
    0x9027C: "GET_INTEGRITY",
    0x1401FC: "QUERY_NETWORK?",
}


class Pair:
    """Two clients that are told the same; `files` are pairs of FileIds."""

    def __init__(self, addresses, port, share, report):
        self.where, self.port, self.share, self.report = addresses, port, share, report
        self.clients = []
        self.connect()

    def connect(self):
        for client in self.clients:
            client.close()
        self.clients = [
            Client(a, self.port, os.environ["SMB_USER"], os.environ["SMB_PASS"], timeout=15) for a in self.where
        ]
        for client, address in zip(self.clients, self.where):
            client.tree_connect(address, self.share)

    def call(self, command, bodies, **more):
        """The final answers of both to one request; `bodies` is one body or a pair."""
        bodies = bodies if isinstance(bodies, tuple) else (bodies, bodies)
        ids = [c.send(command, b, **more) for c, b in zip(self.clients, bodies)]
        self.report.requests += 1
        return [c.await_answer(i) for c, i in zip(self.clients, ids)]

    def on(self, file, make, *args, **more):
        """A pair of bodies of a request that names a file."""
        return tuple(make(f, *args, **more) for f in file)

    def open(self, name, **more):
        """What both must be able to do: a pair of FileIds."""
        return tuple(a.must().body[64:80] for a in self.call(raw.CREATE, raw.create_body(name, **more)))

    def close(self, file):
        self.call(raw.CLOSE, self.on(file, raw.close_body))


class Report:
    def __init__(self):
        self.requests, self.differences = 0, collections.OrderedDict()

    def differ(self, name, example):
        entry = self.differences.setdefault(name, [0, example])
        entry[0] += 1


class Differs(Exception):
    """The two are no longer in the same state; the scene is over."""


def same_status(report, what, answers, example):
    """Whether both said the same; a difference is reported."""
    ours, theirs = (a.status for a in answers)
    if ours != theirs:
        report.differ(f"{what}: {said(ours)}, smbd {said(theirs)}", example)
    return ours == theirs


# What of an answer's content has to be the same.


def flag(value):
    return "0" if value == 0 else "+"


def stream_list(data):
    found = []
    for entry in raw.chained(data):
        length, size = struct.unpack_from("<IQ", entry, 4)
        found.append((entry[24 : 24 + length].decode("utf-16-le", "replace"), size))
    return sorted(found)


def file_content(level, data):
    """A file information class without times, ids and allocation."""
    if level in (6, 46, 55, 56, 59, 60, 64, 65, 67, 68, 69, 70, 71):
        return len(data)
    if level == 4 and len(data) >= 36:
        return [*map(flag, struct.unpack_from("<QQQQ", data)), struct.unpack_from("<I", data, 32)[0], len(data)]
    if level == 5 and len(data) >= 22:
        return [data[8:22].hex(), len(data)]
    if level == 18 and len(data) >= 100:
        # The name is told from different roots.
        return [struct.unpack_from("<I", data, 32)[0], data[48:62].hex(), data[72:96].hex()]
    if level == 34 and len(data) >= 56:
        return [data[40:48].hex(), struct.unpack_from("<I", data, 48)[0]]
    if level == 22:
        return stream_list(data)
    if level == 28:
        return [data[8:10].hex(), len(data)]
    return data.hex()


def fs_content(level, data):
    if level in (4, 11):
        return data.hex()
    if level == 5 and len(data) >= 4:
        return struct.unpack_from("<I", data)[0] & 0x0000000F
    return None if level in (1, 5) else len(data)


class Scene:
    """A folder with a file of 5,000 bytes, an empty one, a folder with three files, and requests about them."""

    def __init__(self, pair, rng, number):
        self.pair, self.rng, self.report, self.base = pair, rng, pair.report, f"scene{number}"
        pair.close(pair.open(self.base, options=1, disposition=2))
        for name, data in (
            ("a", bytes(range(250)) * 20),
            ("b", b""),
            ("d", None),
            ("d\\1", b"1"),
            ("d\\2", b"22"),
            ("d\\Third.txt", b"333"),
        ):
            file = pair.open(f"{self.base}\\{name}", options=1 if data is None else 0x40, disposition=2)
            if data:
                pair.call(raw.WRITE, pair.on(file, raw.write_body, 0, data))
            pair.close(file)

    def path(self, name):
        if isinstance(name, bytes):
            return (self.base + "\\").encode("utf-16-le") + name
        return f"{self.base}\\{name}"

    # The areas, each a walk of a few requests.

    def create(self):
        """One CREATE of anything, and what came of it; then a second beside it."""
        rng, held = self.rng, []
        for turn in range(rng.choice((1, 1, 2, 3))):
            kind = rng.choice(list(NAMES)) if rng.random() < 0.5 else rng.choice(("file", "folder", "missing"))
            how = dict(
                access=rng.choice(ACCESSES),
                disposition=rng.choice((0, 1, 2, 3, 4, 5, 1, 3, 6)),
                options=rng.choice(OPTIONS) | (rng.choice(OPTIONS) if rng.random() < 0.3 else 0),
                share=rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8)),
                attributes=rng.choice(ATTRIBUTES),
            )
            body = raw.create_body(self.path(NAMES[kind]), **how)
            level = rng.choice((0, 1, 2, 2, 2, 2, 3, 4))
            body = body[:4] + struct.pack("<I", level) + body[8:]
            example = f"{kind} " + " ".join(f"{k}={v:#x}" for k, v in how.items()) + f" level={level}"
            answers = self.pair.call(raw.CREATE, body)
            what = f"create {kind}" if turn == 0 else "create beside another"
            if not same_status(self.report, what, answers, example):
                raise Differs
            if answers[0].status:
                continue
            held.append(tuple(a.body[64:80] for a in answers))
            facts = [
                (
                    struct.unpack_from("<I", a.body, 4)[0],
                    struct.unpack_from("<Q", a.body, 48)[0],
                    struct.unpack_from("<I", a.body, 56)[0],
                )
                for a in answers
            ]
            for index, fact in enumerate(("CreateAction", "EndOfFile", "FileAttributes")):
                if facts[0][index] != facts[1][index]:
                    self.report.differ(
                        f"create {kind}: {fact}", f"{example}: {facts[0][index]:#x}, smbd {facts[1][index]:#x}"
                    )
            granted = self.pair.call(raw.QUERY_INFO, self.pair.on(held[-1], raw.query_body, 1, 8))
            if granted[0].status == granted[1].status == 0 and granted[0].buffer() != granted[1].buffer():
                self.report.differ(
                    "create: access granted",
                    f"{example}: {granted[0].buffer().hex()}, smbd {granted[1].buffer().hex()}",
                )
        for file in held:
            self.pair.close(file)
        # What is left, and of which kind.
        for kind in ("file", "folder", "missing"):
            answers = self.pair.call(raw.CREATE, raw.create_body(self.path(NAMES[kind]), access=0x80, disposition=1))
            same_status(self.report, f"left after create, {kind}", answers, "")
            if all(a.status == 0 for a in answers):
                self.pair.close(tuple(a.body[64:80] for a in answers))

    def some_file(self, access=0x1F01FF):
        """An object of the scene, open: (what it is, pair of FileIds)."""
        kind, name, options = self.rng.choice((("file", "a", 0), ("empty", "b", 0), ("folder", "d", 1)))
        return kind, self.pair.open(self.path(name), access=access, options=options, disposition=1)

    def query(self):
        """QUERY_INFO of every class, with buffers of odd lengths."""
        rng, access = self.rng, self.rng.choice((0x1F01FF, 0x1F01FF, 0x80, 0x1, 0x20000))
        kind, file = self.some_file(access)
        for _ in range(16):
            info, level = rng.choice((1, 1, 1, 1, 2, 2, 3, 4, 0, 5)), rng.randrange(0, 72)
            if info == 2:
                level = rng.randrange(0, 14)
            length = rng.choice(LENGTHS) if rng.random() < 0.4 else 65536
            additional = rng.choice((0, 1, 2, 4, 7, 8, 0x10, 0x20)) if info == 3 else 0
            if info == 3:
                level = 0
            answers = self.pair.call(
                raw.QUERY_INFO, self.pair.on(file, raw.query_body, info, level, length, additional)
            )
            which = {1: "file", 2: "filesystem", 3: "security", 4: "quota"}.get(info, f"kind {info}")
            what = f"query {which} {level if info != 3 else hex(additional)}" if info < 4 else f"query {which}"
            example = f"of {kind}, {length} bytes, open for {access:#x}"
            short = "" if length == 65536 else " short"
            if not same_status(self.report, what + short, answers, example) or answers[0].status:
                continue
            told = [
                (file_content if info == 1 else fs_content)(level, a.buffer()) if info in (1, 2) else None
                for a in answers
            ]
            if told[0] != told[1]:
                self.report.differ(f"{what}: content", f"{example}: {told[0]}, smbd {told[1]}")
        self.pair.close(file)

    def setting(self, level):
        """Data for SET_INFO of a class, mostly right."""
        rng = self.rng
        name = rng.choice(("renamed", "a", "b", "d", "d\\in", "none\\x", "bad*", "x:y", "", "\\lead")).encode(
            "utf-16-le"
        )
        to = name if rng.random() < 0.2 else (self.base + "\\").encode("utf-16-le") + name
        time = rng.choice((0, 0, 1, 2**63, 2**64 - 1, 2**64 - 2, 2**64 - 3, 133_000_000_000_000_000))
        right = {
            4: struct.pack("<QQQQII", time, 0, time, 0, rng.choice(ATTRIBUTES), 0),
            10: struct.pack("<B7xQI", rng.randrange(2), rng.choice((0, 0, 0, 5)), len(to)) + to,
            11: struct.pack("<B7xQI", rng.randrange(2), 0, len(to)) + to,
            13: bytes([rng.choice((0, 1, 1, 2))]),
            14: struct.pack("<Q", rng.choice(OFFSETS)),
            15: struct.pack("<IBBH", 0, 0, 3, 2) + b"ONE\0" + b"12",
            16: struct.pack("<I", rng.choice((0, 2, 4, 8, 0x10, 0x20, 0x1000))),
            19: struct.pack("<Q", rng.choice((0, 1, 4096, 100_000, 1 << 63))),
            20: struct.pack("<Q", rng.choice((0, 1, 4096, 100_000, 1 << 63, (1 << 64) - 1))),
            39: struct.pack("<Q", 5000),
            64: struct.pack("<I", rng.choice((0, 1, 3, 0x10, 0x80))),
            65: struct.pack("<I4xQI", rng.choice((0, 1, 2)), 0, len(to)) + to,
        }.get(level, bytes(rng.choice((0, 8, 40))))
        odd = rng.random()
        return (
            right
            if odd < 0.7
            else right[: rng.randrange(len(right) + 1)]
            if odd < 0.9
            else right + b"\0" * rng.randrange(9)
        )

    def set(self):
        """SET_INFO of every class, with what is right and what is not."""
        rng = self.rng
        kind, file = self.some_file(rng.choice((0x1F01FF, 0x1F01FF, 0x1F01FF, 0x80, 0x100, 2)))
        for _ in range(5):
            info = rng.choice((1,) * 9 + (2, 3, 4))
            level = rng.choice((4, 10, 11, 13, 14, 15, 16, 19, 20)) if rng.random() < 0.6 else rng.randrange(0, 72)
            data = self.setting(level) if info == 1 else bytes(rng.choice((0, 8, 20, 48)))
            answers = self.pair.call(
                raw.SET_INFO, self.pair.on(file, raw.set_body, info, level, data, 4 if info == 3 else 0)
            )
            which = {1: "file", 2: "filesystem", 3: "security", 4: "quota"}[info]
            if not same_status(
                self.report,
                f"set {which} {level if info < 3 else ''}".strip(),
                answers,
                f"{kind}, {len(data)} bytes {data.hex()[:120]}",
            ):
                raise Differs
            for asked in (4, 5):
                told = self.pair.call(raw.QUERY_INFO, self.pair.on(file, raw.query_body, 1, asked))
                if told[0].status == told[1].status == 0:
                    ours, theirs = (file_content(asked, a.buffer()) for a in told)
                    if ours != theirs:
                        self.report.differ(
                            f"after set {which} {level}: class {asked}",
                            f"{kind} {data.hex()[:80]}: {ours}, smbd {theirs}",
                        )
                        raise Differs
        self.pair.close(file)
        self.compare_listing("", "set")

    def listing(self, folder):
        """Names and sizes in a folder of the scene, on both."""
        file = self.pair.open(self.path(folder) if folder else self.base, access=0x100081, options=1, disposition=1)
        answers = self.pair.call(raw.QUERY_DIRECTORY, self.pair.on(file, raw.directory_body, 1, "*", 1))
        self.pair.close(file)
        found = []
        for answer in answers:
            entries = [e for e in raw.chained(answer.buffer())] if answer.status == 0 else []
            found.append(
                sorted(
                    (
                        e[64 : 64 + struct.unpack_from("<I", e, 60)[0]].decode("utf-16-le", "replace"),
                        struct.unpack_from("<Q", e, 40)[0] if not struct.unpack_from("<I", e, 56)[0] & 0x10 else 0,
                        struct.unpack_from("<I", e, 56)[0],
                    )
                    for e in entries
                )
            )
        return found

    def compare_listing(self, folder, after, done=()):
        ours, theirs = self.listing(folder)
        if ours != theirs:
            self.report.differ(
                f"left after {after}",
                f"{[x for x in ours if x not in theirs]}, "
                f"smbd {[x for x in theirs if x not in ours]}; {'; '.join(done)}",
            )

    def directory(self):
        """QUERY_DIRECTORY with patterns, classes, flags and lengths."""
        rng = self.rng
        file = self.pair.open(self.path("d"), access=0x100081, options=1, disposition=1)
        for turn in range(12):
            pattern = rng.choice(
                (
                    "*",
                    "*",
                    "1",
                    "2",
                    "*.txt",
                    "*.TXT",
                    "th?rd.txt",
                    "?",
                    "??",
                    "<",
                    "*.",
                    ">",
                    'T*"txt',
                    "",
                    "x",
                    "a\\b",
                    "1*",
                    "third.TXT",
                    "...",
                    "*.*",
                    "<.txt",
                    ">>>>>>.txt",
                )
            )
            level = rng.choice((1, 2, 3, 12, 37, 38, 60)) if rng.random() < 0.85 else rng.randrange(0, 80)
            flags = rng.choice((0, 1, 1, 1, 2, 3, 0x10, 0x11, 4, 5, 0x80))
            length = rng.choice((65536, 65536, 65536, 0, 1, 64, 100, 110, 200, 300))
            answers = self.pair.call(
                raw.QUERY_DIRECTORY, self.pair.on(file, raw.directory_body, level, pattern, flags, 0, length)
            )
            example = f"{pattern!r} class {level} flags {flags:#x} length {length}, request {turn}"
            short = "" if length == 65536 else " short"
            if not same_status(
                self.report,
                f"directory class {level}{short}" if level not in (1, 2, 3, 12, 37, 38) else f"directory{short}",
                answers,
                example,
            ):
                raise Differs
            at = {1: (64, 60), 2: (68, 60), 3: (94, 60), 12: (12, 8), 37: (104, 60), 38: (80, 60)}.get(level)
            if answers[0].status or not at:
                continue
            names = [
                [
                    e[at[0] : at[0] + struct.unpack_from("<I", e, at[1])[0]].decode("utf-16-le", "replace")
                    for e in raw.chained(a.buffer())
                ]
                for a in answers
            ]
            if sorted(names[0]) != sorted(names[1]) and (length == 65536 and not flags & 2):
                self.report.differ("directory: names", f"{example}: {names[0]}, smbd {names[1]}")
                raise Differs
            if length != 65536 or flags & 2:
                # Which come first is the file system's affair, and so is how many fit.
                return
        self.pair.close(file)

    def io(self):
        """READ, WRITE, LOCK, FLUSH and IOCTL at odd places."""
        rng = self.rng
        access = rng.choice((0x1F01FF, 0x1F01FF, 0x1F01FF, 1, 2, 4, 0x80, 0x20))
        kind, file = self.some_file(access)
        other = (
            self.pair.open(self.path("a"), access=0x12019F, disposition=1)
            if kind == "file" and rng.random() < 0.4
            else None
        )
        for _ in range(10):
            which = rng.choice(("read", "write", "lock", "flush", "ioctl", "lock"))
            target, whose = (other, "other ") if other and rng.random() < 0.4 else (file, "")
            if which == "read":
                arguments = (
                    rng.choice(OFFSETS),
                    rng.choice((0, 1, 100, 5000, 5001, 65536)),
                    rng.choice((0, 0, 1, 6000)),
                )
                answers = self.pair.call(raw.READ, self.pair.on(target, raw.read_body, *arguments))
            elif which == "write":
                offset = rng.choice([o for o in OFFSETS if o < 10_000 or o >= 1 << 62])
                arguments = (offset, bytes(rng.choice((0, 1, 100, 5000))), rng.choice((0, 0, 0, 1, 2, 8)))
                answers = self.pair.call(raw.WRITE, self.pair.on(target, raw.write_body, *arguments))
                arguments = (offset, len(arguments[1]), arguments[2])
            elif which == "lock":
                locks = [
                    (
                        rng.choice(OFFSETS),
                        rng.choice((0, 1, 10, 1 << 63, (1 << 64) - 1)),
                        rng.choice((0x11, 0x12, 0x12, 0x12, 4, 4, 0x10, 0x13, 0x14, 0, 3)),
                    )
                    for _ in range(rng.choice((1, 1, 1, 2, 0)))
                ]
                # One that would wait is a matter for another test.
                locks = [(o, n, f | 0x10 if f & 3 else f) for o, n, f in locks]
                arguments = (locks,)
                body = self.pair.on(target, raw.lock_body, locks)
                answers = self.pair.call(raw.LOCK, body if locks else tuple(b + bytes(24) for b in body))
            elif which == "flush":
                arguments, answers = (), self.pair.call(raw.FLUSH, self.pair.on(target, raw.flush_body))
            else:
                code = rng.choice([c for c in FSCTLS if "?" not in FSCTLS[c]])
                data = bytes(rng.choice((0, 1, 4, 8, 16, 24, 32)))
                arguments = (code, data, rng.choice((0, 8, 24, 65536)), rng.choice((1, 1, 1, 0)))
                answers = self.pair.call(raw.IOCTL, self.pair.on(target, raw.ioctl_body, *arguments))
                which = f"ioctl {FSCTLS[code]}"
            example = f"{whose}{kind} open for {access:#x}: {str(arguments)[:160]}"
            if not same_status(self.report, which, answers, example):
                raise Differs
            if which == "read" and not answers[0].status and answers[0].buffer() != answers[1].buffer():
                self.report.differ("read: content", example)
                raise Differs
            if which == "write" and not answers[0].status and answers[0].body[4:8] != answers[1].body[4:8]:
                self.report.differ("write: count", example)
        self.pair.close(file)

    def compound(self):
        """Chains, related or not, with a failure somewhere."""
        rng, elements, words = self.rng, [], []
        for index in range(rng.randrange(2, 6)):
            related = raw.RELATED_OPERATIONS if index and rng.random() < 0.85 else 0
            which = (
                "create"
                if index == 0 and rng.random() < 0.8
                else rng.choice(("create", "query", "read", "write", "close", "flush", "directory", "set"))
            )
            file = raw.RELATED
            kind = rng.choice(("file", "folder", "missing", "missing-parent"))
            elements.append(
                {
                    "create": (raw.CREATE, raw.create_body(self.path(NAMES[kind]), disposition=rng.choice((1, 3)))),
                    "query": (raw.QUERY_INFO, raw.query_body(file, 1, rng.choice((4, 5, 6, 99)))),
                    "read": (raw.READ, raw.read_body(file, 0, 10)),
                    "write": (raw.WRITE, raw.write_body(file, 0, b"12345678")),
                    "close": (raw.CLOSE, raw.close_body(file)),
                    "flush": (raw.FLUSH, raw.flush_body(file)),
                    "directory": (raw.QUERY_DIRECTORY, raw.directory_body(file, 1)),
                    "set": (raw.SET_INFO, raw.set_body(file, 1, 20, struct.pack("<Q", 10))),
                }[which]
                + (related,)
            )
            words.append(f"{which if which != 'create' else 'create ' + kind}{'' if related else '*'}")
        ids = [c.send_compound(elements) for c in self.pair.clients]
        self.report.requests += len(elements)
        for index, both in enumerate(zip(*ids)):
            answers = [c.await_answer(i) for c, i in zip(self.pair.clients, both)]
            if not same_status(
                self.report,
                f"compound {words[index].split()[0].rstrip('*')}",
                answers,
                f"element {index} of {', '.join(words)}",
            ):
                raise Differs

    def notify(self):
        """CHANGE_NOTIFY, then something that happens, or nothing that is asked about."""
        rng = self.rng
        kind, name = rng.choice((("folder", "d"), ("folder", "d"), ("file", "a")))
        file = self.pair.open(self.path(name), access=rng.choice((0x1F01FF, 0x1F01FF, 0x80)), disposition=1)
        arguments = (
            rng.choice((0, 1, 0, 2)),
            rng.choice((0, 1, 16, 4096, 65536, 1 << 30)),
            rng.choice((0xFFF, 1, 2, 0, 0x1000, 8)),
        )
        ids = [c.send(raw.CHANGE_NOTIFY, raw.notify_body(f, *arguments)) for c, f in zip(self.pair.clients, file)]
        self.report.requests += 1
        first = [c.await_answer(i, final=False) for c, i in zip(self.pair.clients, ids)]
        example = f"{kind} flags={arguments[0]:#x} length={arguments[1]} filter={arguments[2]:#x}"
        if not same_status(self.report, "notify", first, example):
            raise Differs
        if first[0].status == raw.PENDING:
            # A new file that is asked about, or the end of the handle.
            wakes = arguments[2] & 1
            if wakes:
                self.pair.close(self.pair.open(self.path("d\\told"), disposition=2, options=0x40))
            else:
                self.pair.close(file)
            last = [c.await_answer(i) for c, i in zip(self.pair.clients, ids)]
            if not same_status(self.report, "notify answered", last, example):
                raise Differs
            told = [a.buffer()[4:] if a.status == 0 else b"" for a in last]
            if wakes and told[0][:20] != told[1][:20]:
                self.report.differ("notify: content", f"{example}: {told[0].hex()}, smbd {told[1].hex()}")
            if not wakes:
                return
        self.pair.close(file)

    def names(self):
        """Rename, delete and create anew, with handles that stand in the way."""
        rng, open_files, done = self.rng, [], []
        for _ in range(8):
            turn = rng.choice(("open", "open", "rename", "rename", "delete", "close", "doc"))
            kind, name = rng.choice(
                (("file", "a"), ("empty", "b"), ("folder", "d"), ("in-folder", "d\\1"), ("new", "new"))
            )
            if turn in ("open", "doc"):
                how = dict(
                    access=rng.choice((0x1F01FF, 0x110080, 0x80, 1)),
                    share=rng.choice((7, 7, 3, 0, 4)),
                    disposition=rng.choice((1, 1, 3)),
                    options=0x1000 if turn == "doc" else 0,
                )
                answers = self.pair.call(raw.CREATE, raw.create_body(self.path(name), **how))
                if not same_status(self.report, "names open", answers, f"{kind} {how}, {len(open_files)} open"):
                    raise Differs
                done.append(f"{turn} {name} {how['access']:#x} {said(answers[0].status)}")
                if not answers[0].status:
                    open_files.append((kind, tuple(a.body[64:80] for a in answers)))
            elif open_files:
                kind, file = rng.choice(open_files)
                if turn == "close":
                    done.append(f"close {kind}")
                    open_files.remove((kind, file))
                    self.pair.close(file)
                    continue
                to = self.path(rng.choice(("a", "b", "d", "d\\1", "new", "d\\new", "A", "d\\..\\x"))).encode(
                    "utf-16-le"
                )
                level, data = (
                    (13, bytes([rng.choice((1, 1, 0))]))
                    if turn == "delete"
                    else (rng.choice((10, 10, 11)), struct.pack("<B7xQI", rng.randrange(2), 0, len(to)) + to)
                )
                answers = self.pair.call(raw.SET_INFO, self.pair.on(file, raw.set_body, 1, level, data))
                done.append(f"{level} {kind} to {to.decode('utf-16-le')} {data[0]} {said(answers[0].status)}")
                if not same_status(
                    self.report,
                    {10: "names rename", 11: "names link", 13: "names delete"}[level],
                    answers,
                    f"{kind} to {to.decode('utf-16-le')} {data[0]}, open: {[k for k, _ in open_files]}, {done}",
                ):
                    raise Differs
        for _, file in open_files:
            self.pair.close(file)
        self.compare_listing("", "names", done)
        if all(any(n == "d" for n, _, _ in side) for side in self.listing("")):
            self.compare_listing("d", "names in folder", done)


AREAS = ["create", "create", "query", "set", "directory", "io", "compound", "notify", "names"]


def main():
    address, other, share, seed, requests, out = sys.argv[1:7]
    report, number = Report(), 0
    pair = Pair((address, other), int(os.environ["SMB_PORT"]), share, report)
    areas = os.environ.get("DIFFERENTIAL_AREAS", ",".join(AREAS)).split(",")
    while report.requests < int(requests):
        number += 1
        # A scene of its own seed: one that ends early does not shift what follows.
        rng = random.Random(f"{seed} {number}")
        area = areas[number % len(areas)]
        try:
            scene = Scene(pair, rng, number)
            getattr(scene, area)()
        except Differs:
            pass
        except raw.Refused as e:
            report.differ(f"{area}: refused on one side", f"scene {number}: {e}")
        except (OSError, struct.error) as e:
            # Whoever it was: an address at the beginning of the text is the one that ended the connection.
            whose = "smbd" if str(e).startswith(other + " ") else "the server under test"
            report.differ(f"{area}: {whose}: {type(e).__name__}", f"scene {number}: {e}")
        # Handles that a scene left go with the connection.
        pair.connect()
    with open(out, "w") as f:
        json.dump({"requests": report.requests, "scenes": number, "differences": report.differences}, f, indent=1)


if __name__ == "__main__":
    main()
