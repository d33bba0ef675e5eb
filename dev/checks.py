"""Shared by dev/prose and dev/cycles: the project's files, Rust source without comments and
strings, and the list of findings that are still allowed (dev/prose.tsv).
"""

import bisect
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "dev/prose.tsv"
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<string>[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)|[bc]?"(?:\\.|[^"\\])*")
      | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^\\'\n])')
      | (?P<name>[A-Za-z_]\w*)""",
    re.DOTALL | re.VERBOSE,
)
BRACKET = re.compile(r"[{}()\[\];]")
TEST_ATTRIBUTE = re.compile(r"#\[(?:cfg\((?:all\()?test\b|(?:tokio::)?test\b)")
UNSEEN = re.compile(r"[^\n]")

Finding = collections.namedtuple("Finding", "crate rule place text")


def listing(*patterns):
    """Returns the project's files, also those that git does not know yet."""
    out = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split("\n")
    return sorted({name for name in out if name and (ROOT / name).is_file()})


def crate_of(name):
    """Returns crates/wire, dev/sim, docs, ... for a file's name, or "." for the top folder."""
    parts = name.split("/")
    if len(parts) == 1:
        return "."
    return "/".join(parts[:2]) if parts[0] in ("crates", "dev") and len(parts) > 2 else parts[0]


def is_test_file(name):
    return "/tests/" in name or name.endswith("/tests.rs")


class Rust:
    """One Rust file. `code` has the length of `text`, with comments, strings and the items of
    tests replaced by spaces; `comments` and `strings` are pairs of an offset and a text."""

    def __init__(self, name, text=None):
        self.name = name
        self.text = (ROOT / name).read_text() if text is None else text
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.comments, self.strings, pieces, last = [], [], [], 0
        for token in TOKEN.finditer(self.text):
            if token.lastgroup == "name":
                continue
            kind = "comment" if token["comment"] else "string" if token["string"] else "char"
            if kind != "char":
                getattr(self, kind + "s").append((token.start(), token[0]))
            pieces += [self.text[last : token.start()], UNSEEN.sub(" ", token[0])]
            last = token.end()
        self.code = "".join(pieces) + self.text[last:]
        self.test_modules = []
        self._leave_out_tests()

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def at(self, offset):
        return f"{self.name}:{self.line(offset)}"

    def end_of_item(self, offset):
        """Returns the offsets of an item's body and behind it: `{` to `}`, or `;` twice."""
        depth, body = 0, None
        for bracket in BRACKET.finditer(self.code, offset):
            mark = bracket[0]
            if mark == ";" and depth == 0:
                return bracket.start(), bracket.end()
            if mark == "{" and depth == 0:
                body = bracket.start()
            if mark in "{([":
                depth += 1
            elif mark in "})]":
                depth -= 1
                if depth == 0 and mark == "}" and body is not None:
                    return body, bracket.end()
                if depth < 0:
                    return bracket.start(), bracket.start()
        return len(self.code), len(self.code)

    def _leave_out_tests(self):
        if re.search(r"^#!\[cfg\((?:all\()?test\b", self.code, re.MULTILINE):
            self.code = UNSEEN.sub(" ", self.code)
            return
        at = 0
        while found := TEST_ATTRIBUTE.search(self.code, at):
            start = found.start()
            # Skip this attribute and the attributes after it: the item begins behind them.
            item = start
            while attribute := re.compile(r"\s*#\[").match(self.code, item):
                item, depth = attribute.end(), 1
                while depth and item < len(self.code):
                    depth += {"[": 1, "]": -1}.get(self.code[item], 0)
                    item += 1
            end = self.end_of_item(item)[1]
            if module := re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;").match(self.code, item):
                self.test_modules.append(module[1])
            self.code = self.code[:start] + UNSEEN.sub(" ", self.code[start:end]) + self.code[end:]
            at = end


def folder_of(name):
    """Returns the folder in which the modules that a file declares are."""
    path = pathlib.PurePosixPath(name)
    inner = path.parent if path.stem in ("mod", "lib", "main") else path.parent / path.stem
    return inner.as_posix()


def rust_files():
    """Returns all Rust files by name, and the names of those that only tests use."""
    files = {name: Rust(name) for name in listing("*.rs")}
    tests = {name for name in files if is_test_file(name)}
    roots = []
    for name, source in files.items():
        for module in source.test_modules:
            roots.append(f"{folder_of(name)}/{module}")
    for name in files:
        if any(name == root + ".rs" or name.startswith(root + "/") for root in roots):
            tests.add(name)
    return files, tests


def allowed():
    """Returns the counts of dev/prose.tsv by crate and rule."""
    counts = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line and not line.startswith("#"):
            crate, rule, count = line.split("\t")
            counts[crate, rule] = int(count)
    return counts


def report(tool, rules, findings, arguments):
    """Compares findings with the list and ends the process: status 1 if a count is not the one
    that is listed. `--lower` writes lower counts into the list; `--all` or the names of crates
    and rules print the findings that are allowed too."""
    counts = collections.Counter((f.crate, f.rule) for f in findings)
    listed = {key: count for key, count in allowed().items() if key[1] in rules}
    if "--lower" in arguments:
        kept = {key: count for key, count in allowed().items() if key[1] not in rules}
        for key in set(listed) | set(counts):
            if count := min(counts[key], listed.get(key, 0)):
                kept[key] = count
        head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
        LIST.write_text("\n".join(head + [f"{c}\t{r}\t{n}" for (c, r), n in sorted(kept.items())]) + "\n")
        listed = {key: count for key, count in kept.items() if key[1] in rules}
    wanted = [a for a in arguments if not a.startswith("--")]
    if unknown := [a for a in wanted if a not in rules and not (ROOT / a).is_dir()]:
        sys.exit(f"{tool}: neither a crate nor a rule: {', '.join(unknown)}; rules: {', '.join(rules)}")
    failed = False
    for key in sorted(set(counts) | set(listed)):
        crate, rule = key
        more, fewer = counts[key] > listed.get(key, 0), counts[key] < listed.get(key, 0)
        named = (
            "--all" in arguments
            or bool(wanted)
            and (crate in wanted or not set(wanted) - set(rules))
            and (rule in wanted or not set(wanted) & set(rules))
        )
        if more or named:
            for finding in findings:
                if (finding.crate, finding.rule) == key:
                    print(f"{finding.place}: {rule}: {finding.text}", file=sys.stderr)
        if more:
            print(f"{tool}: {crate}: {rule}: {counts[key]} findings, {listed.get(key, 0)} allowed", file=sys.stderr)
        if fewer:
            print(
                f"{tool}: {crate}: {rule}: {counts[key]} findings, {listed[key]} allowed: lower "
                f"the number in {LIST.relative_to(ROOT)} (`dev/{tool} --lower`)",
                file=sys.stderr,
            )
        failed |= more or fewer
    if failed:
        sys.exit(1)
    left = sum(counts.values())
    print(
        f"{tool}: {', '.join(rules)} hold" + (f" but for {left} findings of {LIST.relative_to(ROOT)}" if left else "")
    )
