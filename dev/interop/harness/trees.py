"""Data to move, and the comparison of names and bytes between two directories."""

import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

from .model import OUT, Failure, Skip

ODD_SIZES = [0, 1, 2, 4095, 4096, 4097, 65535, 65536, 65537, 1048575, 1048577, 8 * 1048576 + 13]

# A file server must keep each of these names unchanged: MS-FSCC 2.1.5 reserves none of them.
NAMES = [
    "plain.txt",
    "with several  spaces inside.txt",
    "MiXeD CaSe.TXT",
    "UPPER",
    "no_extension",
    "two.dots.tar.gz",
    "-starts-with-dash",
    "~tilde~",
    "comma, and 'quote' & #hash %25 $dollar @at !bang",
    "[brackets] {braces} (round) +plus =equals ^caret `tick`",
    "äöüß ÄÖÜ",
    "naïve café",  # composed
    "cafe\u0301",  # decomposed: another name
    "日本語のファイル名.txt",
    "Ελληνικά και кириллица",
    "עברית العربية",
    "emoji 🦀🗂️.bin",  # outside the basic plane
    "\u00a0no-break\u00a0",
    "a" * 255,
    "b" * 251 + ".txt",
    "語" * 85,  # 255 bytes of UTF-8
    "🦀" * 63,  # 126 UTF-16 code units in 252 bytes
]


def fill(path, size, seed):
    """Makes a file of `size` reproducible bytes without repeated blocks."""
    source = random.Random(seed)
    with open(path, "wb") as f:
        while size > 0:
            n = min(size, 1 << 20)
            f.write(source.randbytes(n))
            size -= n
    return Path(path)


def big_file(size):
    """Returns a file of `size` random bytes, made once."""
    path = OUT / "data" / f"big-{size}"
    if not path.exists() or path.stat().st_size != size:
        path.parent.mkdir(parents=True, exist_ok=True)
        fill(path, size, size)
    return path


def odd_files(directory):
    """Makes one file for each size that is an edge case."""
    directory.mkdir(parents=True, exist_ok=True)
    return [fill(directory / f"size-{size}", size, size) for size in ODD_SIZES]


def named_tree(directory):
    """Makes a small tree with every odd name, as file and as directory, four levels deep."""
    for i, name in enumerate(NAMES):
        base = directory / f"dir {i}" if len(os.fsencode(name)) > 200 else directory / f"{i} {name}"
        deep = base / "x" / "y y"
        deep.mkdir(parents=True, exist_ok=True)
        fill(base / name, 100 * i, i)
        fill(deep / name, 7000 * i, i + 1000)
    (directory / "empty directory").mkdir(exist_ok=True)
    return directory


def digest(root, names=None):
    """Returns {relative name as bytes: 'dir' or 'SIZE SHA-256'} for everything under `root`."""
    root, found = os.fsencode(root), {}
    for where, dirs, files in os.walk(root):
        for name in dirs:
            found[os.path.relpath(os.path.join(where, name), root)] = "dir"
        for name in files:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                text = hashlib.file_digest(f, "sha256").hexdigest()
                found[os.path.relpath(path, root)] = f"{os.fstat(f.fileno()).st_size} {text}"
    return found if names is None else {n: found.get(n) for n in names}


def same_file(a, b):
    """Fails unless both files exist with the same bytes."""
    for path in (a, b):
        if not os.path.isfile(path):
            raise Failure(f"{os.path.basename(path)!r} is missing in {os.path.dirname(path)}")
    sums = []
    for path in (a, b):
        with open(path, "rb") as f:
            sums.append((os.fstat(f.fileno()).st_size, hashlib.file_digest(f, "sha256").hexdigest()))
    if sums[0] != sums[1]:
        raise Failure(f"{os.path.basename(a)!r} differs: {sums[0][0]} bytes here, {sums[1][0]} there")


def same_tree(a, b):
    """Fails unless both trees have the same names and bytes; returns how many entries."""
    left = digest(a)
    if not left:
        raise Failure(f"{a} is empty: nothing was compared")
    return same_digest(left, digest(b))


def same_digest(left, right):
    """Fails unless two answers of `digest` are equal; returns how many entries."""
    if left != right:
        lost = [n for n in left if n not in right]
        new = [n for n in right if n not in left]
        changed = [n for n in left if n in right and left[n] != right[n]]

        def show(names):
            return [os.fsdecode(n) for n in sorted(names)[:3]]

        raise Failure(
            f"of {len(left)} entries {len(lost)} lost {show(lost)}, {len(new)} new {show(new)}, "
            f"{len(changed)} changed {show(changed)}"
        )
    return len(left)


def toolchain_tree(count=20_000):
    """Makes a tree of `count` files of the Rust toolchain as hard links, once."""
    target = OUT / "data" / f"toolchain-{count}"
    if target.exists():
        return target
    try:
        asked = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    except OSError as e:
        raise Skip("no rustc, whose files are the tree") from e
    root, part, made = Path(asked.stdout.strip()), target.with_suffix(".part"), 0
    shutil.rmtree(part, ignore_errors=True)
    for where, dirs, files in os.walk(root):
        dirs.sort()
        for name in sorted(files):
            source = Path(where, name)
            if made == count:
                break
            if source.is_symlink():
                continue
            copy = part / source.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, copy)
            except OSError:  # another file system
                shutil.copyfile(source, copy)
            made += 1
    if made < count:
        raise Skip(f"the toolchain has {made} files: install rust-docs")
    part.rename(target)
    return target
