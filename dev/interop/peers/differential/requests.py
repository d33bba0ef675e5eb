"""Areas of data, locks, compounds, change notification and names."""

import struct

import raw

from .pair import Differs, same_status
from .values import FSCTLS, NAMES, OFFSETS, said


def io(scene):
    """READ, WRITE, LOCK, FLUSH and IOCTL at edge offsets."""
    rng = scene.rng
    access = rng.choice((0x1F01FF, 0x1F01FF, 0x1F01FF, 1, 2, 4, 0x80, 0x20))
    kind, file = scene.some_file(access)
    other = (
        scene.pair.open(scene.path("a"), access=0x12019F, disposition=1)
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
            answers = scene.pair.call(raw.READ, scene.pair.on(target, raw.read_body, *arguments))
        elif which == "write":
            offset = rng.choice([o for o in OFFSETS if o < 10_000 or o >= 1 << 62])
            arguments = (offset, bytes(rng.choice((0, 1, 100, 5000))), rng.choice((0, 0, 0, 1, 2, 8)))
            answers = scene.pair.call(raw.WRITE, scene.pair.on(target, raw.write_body, *arguments))
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
            # Fail at once where the client would let a lock wait (0x10 is
            # LOCKFLAG_FAIL_IMMEDIATELY).
            locks = [(o, n, f | 0x10 if f & 3 else f) for o, n, f in locks]
            arguments = (locks,)
            body = scene.pair.on(target, raw.lock_body, locks)
            answers = scene.pair.call(raw.LOCK, body if locks else tuple(b + bytes(24) for b in body))
        elif which == "flush":
            arguments, answers = (), scene.pair.call(raw.FLUSH, scene.pair.on(target, raw.flush_body))
        else:
            code = rng.choice([c for c in FSCTLS if "?" not in FSCTLS[c]])
            data = bytes(rng.choice((0, 1, 4, 8, 16, 24, 32)))
            arguments = (code, data, rng.choice((0, 8, 24, 65536)), rng.choice((1, 1, 1, 0)))
            answers = scene.pair.call(raw.IOCTL, scene.pair.on(target, raw.ioctl_body, *arguments))
            which = f"ioctl {FSCTLS[code]}"
        example = f"{whose}{kind} open for {access:#x}: {str(arguments)[:160]}"
        if not same_status(scene.report, which, answers, example):
            raise Differs
        if which == "read" and not answers[0].status and answers[0].buffer() != answers[1].buffer():
            scene.report.differ("read: content", example)
            raise Differs
        if which == "write" and not answers[0].status and answers[0].body[4:8] != answers[1].body[4:8]:
            scene.report.differ("write: count", example)
    scene.pair.close(file)


def compound(scene):
    """Compounds, related or not, with failures at any place."""
    rng, elements, words = scene.rng, [], []
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
                "create": (raw.CREATE, raw.create_body(scene.path(NAMES[kind]), disposition=rng.choice((1, 3)))),
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
    ids = [c.send_compound(elements) for c in scene.pair.clients]
    scene.report.requests += len(elements)
    for index, both in enumerate(zip(*ids, strict=True)):
        answers = [c.await_answer(i) for c, i in zip(scene.pair.clients, both, strict=True)]
        if not same_status(
            scene.report,
            f"compound {words[index].split()[0].rstrip('*')}",
            answers,
            f"element {index} of {', '.join(words)}",
        ):
            raise Differs


def notify(scene):
    """CHANGE_NOTIFY, then a change that matches the filter, or the end of the handle."""
    rng = scene.rng
    kind, name = rng.choice((("folder", "d"), ("folder", "d"), ("file", "a")))
    file = scene.pair.open(scene.path(name), access=rng.choice((0x1F01FF, 0x1F01FF, 0x80)), disposition=1)
    arguments = (
        rng.choice((0, 1, 0, 2)),
        rng.choice((0, 1, 16, 4096, 65536, 1 << 30)),
        rng.choice((0xFFF, 1, 2, 0, 0x1000, 8)),
    )
    ids = [
        c.send(raw.CHANGE_NOTIFY, raw.notify_body(f, *arguments)) for c, f in zip(scene.pair.clients, file, strict=True)
    ]
    scene.report.requests += 1
    first = [c.await_answer(i, final=False) for c, i in zip(scene.pair.clients, ids, strict=True)]
    example = f"{kind} flags={arguments[0]:#x} length={arguments[1]} filter={arguments[2]:#x}"
    if not same_status(scene.report, "notify", first, example):
        raise Differs
    if first[0].status == raw.PENDING:
        # Wake the watch: create a file that matches the filter, or else close the handle.
        wakes = arguments[2] & 1
        if wakes:
            scene.pair.close(scene.pair.open(scene.path("d\\told"), disposition=2, options=0x40))
        else:
            scene.pair.close(file)
        last = scene.pair.notified(ids)
        if last is None:
            raise Differs
        if not same_status(scene.report, "notify answered", last, example):
            raise Differs
        told = [a.buffer()[4:] if a.status == 0 else b"" for a in last]
        if wakes and told[0][:20] != told[1][:20]:
            scene.report.differ("notify: content", f"{example}: {told[0].hex()}, smbd {told[1].hex()}")
        if not wakes:
            return
    scene.pair.close(file)


def names(scene):
    """Rename, delete and create again, with open handles in the way."""
    rng, open_files, done = scene.rng, [], []
    for _ in range(8):
        turn = rng.choice(("open", "open", "rename", "rename", "delete", "close", "doc"))
        kind, name = rng.choice((("file", "a"), ("empty", "b"), ("folder", "d"), ("in-folder", "d\\1"), ("new", "new")))
        if turn in ("open", "doc"):
            how = dict(
                access=rng.choice((0x1F01FF, 0x110080, 0x80, 1)),
                share=rng.choice((7, 7, 3, 0, 4)),
                disposition=rng.choice((1, 1, 3)),
                options=0x1000 if turn == "doc" else 0,
            )
            answers = scene.pair.call(raw.CREATE, raw.create_body(scene.path(name), **how))
            if not same_status(scene.report, "names open", answers, f"{kind} {how}, {len(open_files)} open"):
                raise Differs
            done.append(f"{turn} {name} {how['access']:#x} {said(answers[0].status)}")
            if not answers[0].status:
                open_files.append((kind, tuple(a.body[64:80] for a in answers)))
        elif open_files:
            kind, file = rng.choice(open_files)
            if turn == "close":
                done.append(f"close {kind}")
                open_files.remove((kind, file))
                scene.pair.close(file)
                continue
            to = scene.path(rng.choice(("a", "b", "d", "d\\1", "new", "d\\new", "A", "d\\..\\x"))).encode("utf-16-le")
            level, data = (
                (13, bytes([rng.choice((1, 1, 0))]))
                if turn == "delete"
                else (rng.choice((10, 10, 11)), struct.pack("<B7xQI", rng.randrange(2), 0, len(to)) + to)
            )
            answers = scene.pair.call(raw.SET_INFO, scene.pair.on(file, raw.set_body, 1, level, data))
            done.append(f"{level} {kind} to {to.decode('utf-16-le')} {data[0]} {said(answers[0].status)}")
            if not same_status(
                scene.report,
                {10: "names rename", 11: "names link", 13: "names delete"}[level],
                answers,
                f"{kind} to {to.decode('utf-16-le')} {data[0]}, open: {[k for k, _ in open_files]}, {done}",
            ):
                raise Differs
    for _, file in open_files:
        scene.pair.close(file)
    scene.compare_listing("", "names", done)
    if all(any(n == "d" for n, _, _ in side) for side in scene.listing("")):
        scene.compare_listing("d", "names in folder", done)
