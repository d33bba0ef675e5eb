"""Areas of CREATE, QUERY_INFO, SET_INFO and QUERY_DIRECTORY."""

import struct

import raw

from .content import file_content, fs_content
from .pair import Differs, same_status
from .values import ACCESSES, ATTRIBUTES, LENGTHS, NAMES, OFFSETS, OPTIONS, said


def create(scene):
    """Sends one to three CREATEs, compares results and access, and looks at what they left."""
    rng, held = scene.rng, []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice(list(NAMES)) if rng.random() < 0.5 else rng.choice(("file", "folder", "missing"))
        how = dict(
            access=rng.choice(ACCESSES),
            disposition=rng.choice((0, 1, 2, 3, 4, 5, 1, 3, 6)),
            options=rng.choice(OPTIONS) | (rng.choice(OPTIONS) if rng.random() < 0.3 else 0),
            share=rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8)),
            attributes=rng.choice(ATTRIBUTES),
        )
        body = raw.create_body(scene.path(NAMES[kind]), **how)
        level = rng.choice((0, 1, 2, 2, 2, 2, 3, 4))
        body = body[:4] + struct.pack("<I", level) + body[8:]
        example = f"{kind} " + " ".join(f"{k}={v:#x}" for k, v in how.items()) + f" level={level}"
        answers = scene.pair.call(raw.CREATE, body)
        if not same_status(scene.report, f"create {kind}{told_apart(**how)}", answers, example):
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
                scene.report.differ(
                    f"create {kind}: {fact}", f"{example}: {facts[0][index]:#x}, smbd {facts[1][index]:#x}"
                )
        granted = scene.pair.call(raw.QUERY_INFO, scene.pair.on(held[-1], raw.query_body, 1, 8))
        if granted[0].status == granted[1].status == 0 and granted[0].buffer() != granted[1].buffer():
            scene.report.differ(
                "create: access granted",
                f"{example}: {granted[0].buffer().hex()}, smbd {granted[1].buffer().hex()}",
            )
    for file in held:
        scene.pair.close(file)
    # Compare which objects still exist after the request.
    for kind in ("file", "folder", "missing"):
        answers = scene.pair.call(raw.CREATE, raw.create_body(scene.path(NAMES[kind]), access=0x80, disposition=1))
        same_status(scene.report, f"left after create, {kind}", answers, "")
        if all(a.status == 0 for a in answers):
            scene.pair.close(tuple(a.body[64:80] for a in answers))


def told_apart(access, attributes, **_):
    """Returns what the name of a difference says about a CREATE that is refused by itself."""
    if access == 0 or access & 0x0CE0FE00:
        return " without valid rights"
    return " encrypted" if attributes & 0x4000 else ""


def query(scene):
    """QUERY_INFO of every class, with buffers of odd lengths."""
    rng, access = scene.rng, scene.rng.choice((0x1F01FF, 0x1F01FF, 0x80, 0x1, 0x20000))
    kind, file = scene.some_file(access)
    for _ in range(16):
        info, level = rng.choice((1, 1, 1, 1, 2, 2, 3, 4, 0, 5)), rng.randrange(0, 72)
        if info == 2:
            level = rng.randrange(0, 14)
        length = rng.choice(LENGTHS) if rng.random() < 0.4 else 65536
        additional = rng.choice((0, 1, 2, 4, 7, 8, 0x10, 0x20)) if info == 3 else 0
        if info == 3:
            level = 0
        answers = scene.pair.call(raw.QUERY_INFO, scene.pair.on(file, raw.query_body, info, level, length, additional))
        which = {1: "file", 2: "filesystem", 3: "security", 4: "quota"}.get(info, f"kind {info}")
        what = f"query {which} {level if info != 3 else hex(additional)}" if info < 4 else f"query {which}"
        example = f"of {kind}, {length} bytes, open for {access:#x}"
        short = "" if length == 65536 else " short"
        if not same_status(scene.report, what + short, answers, example) or answers[0].status:
            continue
        told = [
            (file_content if info == 1 else fs_content)(level, a.buffer()) if info in (1, 2) else None for a in answers
        ]
        if told[0] != told[1]:
            scene.report.differ(f"{what}: content", f"{example}: {told[0]}, smbd {told[1]}")
    scene.pair.close(file)


def setting(scene, level):
    """Returns data for SET_INFO of a class, mostly valid."""
    rng = scene.rng
    name = rng.choice(("renamed", "a", "b", "d", "d\\in", "none\\x", "bad*", "x:y", "", "\\lead")).encode("utf-16-le")
    to = name if rng.random() < 0.2 else (scene.base + "\\").encode("utf-16-le") + name
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


def set(scene):
    """SET_INFO of every class, with valid and invalid data."""
    rng, done = scene.rng, []
    kind, file = scene.some_file(rng.choice((0x1F01FF, 0x1F01FF, 0x1F01FF, 0x80, 0x100, 2)))
    for _ in range(5):
        info = rng.choice((1,) * 9 + (2, 3, 4))
        level = rng.choice((4, 10, 11, 13, 14, 15, 16, 19, 20)) if rng.random() < 0.6 else rng.randrange(0, 72)
        data = setting(scene, level) if info == 1 else bytes(rng.choice((0, 8, 20, 48)))
        answers = scene.pair.call(
            raw.SET_INFO, scene.pair.on(file, raw.set_body, info, level, data, 4 if info == 3 else 0)
        )
        which = {1: "file", 2: "filesystem", 3: "security", 4: "quota"}[info]
        if not same_status(
            scene.report,
            f"set {which} {level if info < 3 else ''}".strip(),
            answers,
            f"{kind}, {len(data)} bytes {data.hex()[:120]}, after {', '.join(done) or 'nothing'}",
        ):
            raise Differs
        done.append(f"{info}/{level} {said(answers[0].status)}")
        for asked in (4, 5):
            told = scene.pair.call(raw.QUERY_INFO, scene.pair.on(file, raw.query_body, 1, asked))
            if told[0].status == told[1].status == 0:
                ours, theirs = (file_content(asked, a.buffer()) for a in told)
                if ours != theirs:
                    scene.report.differ(
                        f"after set {which} {level}: class {asked}",
                        f"{kind} {data.hex()[:80]}: {ours}, smbd {theirs}",
                    )
                    raise Differs
    scene.pair.close(file)
    scene.compare_listing("", "set")


def directory(scene):
    """QUERY_DIRECTORY with patterns, classes, flags and lengths."""
    rng = scene.rng
    file = scene.pair.open(scene.path("d"), access=0x100081, options=1, disposition=1)
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
        answers = scene.pair.call(
            raw.QUERY_DIRECTORY, scene.pair.on(file, raw.directory_body, level, pattern, flags, 0, length)
        )
        example = f"{pattern!r} class {level} flags {flags:#x} length {length}, request {turn}"
        short = "" if length == 65536 else " short"
        if not same_status(
            scene.report,
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
            scene.report.differ("directory: names", f"{example}: {names[0]}, smbd {names[1]}")
            raise Differs
        if length != 65536 or flags & 2:
            # The file system decides the order of the names, and so which names fit into the
            # answer.
            return
    scene.pair.close(file)
