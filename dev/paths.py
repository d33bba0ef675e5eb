"""Used by dev/cycles: the files, folders and items that ARCHITECTURE.md and CONTRIBUTING.md name.

A name in backticks that has a slash or a suffix is a path. It begins at the top, in `crates`, in the
`src` of a crate (`client/session` is crates/client/src/session) or, in ARCHITECTURE.md, in that of the
server; or it stands beside, above or below a path that its row, or its section, has named before. A
module may be named without `.rs`. `a::b` is an item b of a module or type a. Without backticks the
paths of docs, dev, crates and contrib count.
"""

import fnmatch
import re

import checks

TICKED = re.compile(r"`([^`\n]+)`")
IS_PATH = re.compile(r"(?:[\w.*-]+/)*[\w*-]+(?:\.[a-z]{2,4})?/?")
IS_ITEM = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+")
BARE = re.compile(r"(?<![\w/.`])((?:docs|dev|crates|contrib)/[\w./-]*\w)")
SUFFIXES = ("rs", "md", "tsv", "txt", "toml", "json", "yml")
DEFINES = r"\b(?:fn|struct|enum|union|type|trait|const|static|macro_rules!|mod|use)\b[^;={{(]*\b{}\b"


class Tree:
    """The project's files and folders. Code is read when an item is asked for."""

    def __init__(self, files, read):
        self.files, self.read = set(files), read
        self.folders = {name[:at] for name in files for at in range(len(name)) if name[at] == "/"}

    def has(self, path):
        """True for a file or folder, a module without its suffix, a decision by its number, and a
        pattern that fits some."""
        path = path.rstrip("/")
        if re.fullmatch(r"docs/adr/\d{4}", path):
            return any(name.startswith(f"{path}-") for name in self.files)
        if "*" in path:
            return any(fnmatch.fnmatchcase(name, path) for name in self.files)
        return path in self.files or path in self.folders or f"{path}.rs" in self.files

    def code(self, path):
        """Returns the code of a module and its parts."""
        own = {path, f"{path}.rs"}
        return "\n".join(self.read(name) for name in self.files if name in own or name.startswith(f"{path}/"))

    def spelled(self, path, roots):
        """Yields the places in which a path without its beginning can be."""
        yield path
        yield f"crates/{path}"
        crate, _, rest = path.partition("/")
        yield f"crates/{crate}/src/{rest}"
        for root in roots:
            yield f"{root}/{path}"

    def find(self, path, roots, places):
        """Returns where a path is, or None. A name alone that follows no path may be anywhere."""
        for name in [*self.spelled(path, roots), *(f"{place}/{path}" for place in places)]:
            if self.has(name):
                return name.rstrip("/")
        if not places and "/" not in path:
            return next((name for name in self.files if name.endswith(f"/{path}")), None)
        return None

    def has_item(self, names, roots):
        """True if the names lead to a module, or to an item of one or of a type."""
        names = [names[0].removeprefix("frevo_"), *names[1:]]
        for count in range(len(names), 0, -1):
            for path in self.spelled("/".join(names[:count]), roots):
                if path.startswith("crates/") and self.has(path):
                    code = self.code(path.rstrip("/")) if count < len(names) else ""
                    return all(re.search(DEFINES.format(name), code) for name in names[count:])
        code = self.code("crates")
        return all(re.search(DEFINES.format(name), code) for name in names)


def around(path):
    """Returns the folders in which a name that follows `path` can be: its own, that of its parts, and
    those above, up to `src`."""
    out = [path, f"{path}/src", path.removesuffix(".rs")]
    while "/" in path and not path.endswith("/src"):
        path = path.rpartition("/")[0]
        out.append(path)
    return out


def missing(page, tree, roots):
    """Yields pairs of a line's number and a name that leads nowhere."""
    places, in_code = [], False
    for number, line in enumerate(page.splitlines(), 1):
        in_code ^= line.startswith("```")
        if line.startswith(("#", "|")):
            # A section, or a row of a table, begins with no path before it.
            places = []
        named = [] if in_code else TICKED.findall(line)
        for name in named:
            if IS_ITEM.fullmatch(name):
                if not tree.has_item(name.split("::"), roots):
                    yield number, name
                continue
            name = name.removeprefix("./").partition(" ")[0]
            is_path = IS_PATH.fullmatch(name) and ("/" in name or name.rpartition(".")[2] in SUFFIXES)
            if not is_path:
                continue
            # Each room has a mod.rs.
            found = tree.find(name, roots, places if name != "mod.rs" else [])
            if found is None:
                yield number, name
            else:
                places += around(found)
        for name in BARE.findall(TICKED.sub("", line)):
            if not tree.has(name):
                yield number, name


def unlisted(page, tree):
    """Yields the crates that have no line in the list of ARCHITECTURE.md."""
    crates = {name.split("/")[1] for name in tree.files if re.fullmatch(r"crates/[^/]+/Cargo\.toml", name)}
    listed = set(re.findall(r"^crates/([\w-]+)", page, re.MULTILINE))
    yield from sorted(crates - listed)


def check():
    """Finds names in both pages that lead nowhere, and crates that ARCHITECTURE.md does not list."""
    tree = Tree(checks.listing(), lambda name: (checks.ROOT / name).read_text() if name.endswith(".rs") else "")
    for name, roots in (("ARCHITECTURE.md", ["crates/server/src"]), ("CONTRIBUTING.md", ["crates/server/src"])):
        page = (checks.ROOT / name).read_text()
        for number, path in missing(page, tree, roots):
            yield checks.Finding(".", "way", f"{name}:{number}", f"there is no {path}")
        if name == "ARCHITECTURE.md":
            for crate in unlisted(page, tree):
                yield checks.Finding(".", "way", f"{name}:1", f"has no line for crates/{crate}")


def trial():
    """The rule is tried before it is believed."""
    texts = {
        "crates/a/src/b/c.rs": "pub struct Known; impl Known { fn asks() {} }",
        "crates/a/src/b/c/d.rs": "",
        "crates/a/Cargo.toml": "",
        "crates/e/Cargo.toml": "",
        "dev/run": "",
    }
    tree = Tree(texts, texts.get)
    good = "# A\nsee `a/b/c.rs`, `d.rs`, `a/b/c/d`, `b/c.rs`, `b/*.rs`, `a::b::c::Known`, `Known::asks`, dev/run\n"
    assert list(missing(good, tree, ["crates/a/src"])) == []
    bad = "# A\n`a/b/c.rs` `x.rs`\n| `a/b` | `gone.rs` |\n`Known::tells` `a::b::Gone` dev/walk\n"
    found = [name for _, name in missing(bad, tree, ["crates/a/src"])]
    assert found == ["x.rs", "gone.rs", "Known::tells", "a::b::Gone", "dev/walk"], found
    assert list(unlisted("crates/a   it\n", tree)) == ["e"]


trial()
