"""Judges results by dev/interop/expected.toml and writes the table."""

import collections
import datetime
import fnmatch
import os
import re
import subprocess
import tomllib

from .model import HERE, OUT

WHOSE = {"peer": "peer's fault", "planned": "planned", "reference": "reference server", "choice": "by choice"}

# A specification's section, which justifies a result different from smbd's.
CITATION = re.compile(r"\bMS-[A-Z0-9]+ \d|\bRFC ?\d")

# Results of Debian 12's smbd: with the suites of Samba and pike, and with other clients.
BASELINES = ["baseline-smbd-4.17.tsv", "results/clients-smbd-4.17.tsv"]

# Suites of other projects: Frevo is compared with smbd's results there.
SUITES = ("smbtorture", "pike", "rclone", "suites", "xfstests")


def results(path):
    """Reads an earlier table; returns {test: result}."""
    with open(path) as f:
        if f.readline().rstrip("\n").split("\t")[:2] != ["test", "result"]:
            raise SystemExit(f"{path}: not a table of this run")
        return dict(line.rstrip("\n").split("\t")[:2] for line in f)


def guest_version():
    """Returns the Linux version of the guests, for example 6.1.176, or None without a guest kernel."""
    kernel = os.environ.get("UML_KERNEL", "linux.uml")
    try:
        return subprocess.run([kernel, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Expectations:
    """The rows that are known not to pass, each with its reason."""

    def __init__(self, server, samba=None):
        self.server = server
        self.baseline = {}
        for name in [f"results/smbtorture-smbd-{samba}.tsv"] if samba else BASELINES:
            if (HERE / name).exists():
                self.baseline |= results(HERE / name)
        with open(HERE / "expected.toml", "rb") as f:
            entries = tomllib.load(f).get("expect", [])
        self.entries = []
        guest = guest_version() + "."
        for e in entries:
            unknown = set(e) - {"test", "server", "guest", "samba", "result", "reason", "whose"}
            if unknown or not e.get("reason") or e.get("whose") not in WHOSE or not e.get("test"):
                raise SystemExit(f"expected.toml: entry {e} needs test, reason and whose (one of {', '.join(WHOSE)})")
            if e.get("result", "fail") not in ("fail", "skip", "either"):
                raise SystemExit(f"expected.toml: {e['test']}: result must be fail, skip or either")
            if samba and "samba" not in e:
                # The list is made for smbd 4.17: a newer release may no longer differ.
                e["result"] = "either"
            releases = e.get("samba", samba)
            if samba not in (releases if isinstance(releases, list) else [releases]):
                continue
            guests = e.get("guest", [])
            guests = tuple(v + "." for v in ([guests] if isinstance(guests, str) else guests)) or ("",)
            if e.get("server", "frevo") in (server, "any") and guest.startswith(guests):
                names = e["test"] if isinstance(e["test"], list) else [e["test"]]
                self.entries += [{**e, "test": n, "hits": 0} for n in names]

    def judge(self, row):
        """Sets the row's verdict: good, expected, unexpected, or unexpected pass."""
        entry = next((e for e in self.entries if fnmatch.fnmatchcase(row.name, e["test"])), None)
        if entry:
            entry["hits"] += 1
        awaited = entry.get("result", "fail") if entry else None
        before = self.baseline.get(row.name)
        # smbtorture skips a test because smbd lacks the feature: the skip says nothing about Frevo.
        # smbd itself, the reference, must repeat every result of its baseline.
        repeated = before not in (None, "pass") and row.result == before
        if not entry and repeated and (self.server == "smbd" or before == "skip"):
            row.verdict = "expected"
            return row.verdict
        if row.result == "pass":
            row.verdict = "good" if awaited in (None, "either") else "UNEXPECTED PASS"
        elif awaited in (row.result, "either"):
            row.verdict = "expected"
            row.detail = f"{entry['reason']} ({WHOSE[entry['whose']]})"
        else:
            row.verdict = "SKIPPED" if row.result == "skip" else "UNEXPECTED"
        return row.verdict

    def against_reference(self, rows):
        """[(a line for each peer that the baseline has too, tests lost without a citation)].

        What smbd passes and Frevo does not, by decision, must be a decision of the specification.
        """
        lines = []
        for peer in SUITES:
            mine = [r for r in rows if r.name.startswith(peer + "/")]
            if not mine or self.server == "smbd":
                continue
            passed = sum(r.result == "pass" for r in mine)
            there = sum(self.baseline.get(r.name) == "pass" for r in mine)
            gained = sum(self.baseline.get(r.name) != "pass" and r.result == "pass" for r in mine)
            lost = [r for r in mine if self.baseline.get(r.name) == "pass" and r.result != "pass"]
            bare = [r.name for r in lost if not CITATION.search(r.detail if r.verdict == "expected" else "")]
            lines.append(
                (
                    f"{peer}: {passed} passed of {len(mine)}; smbd passes {there}; {gained} more than smbd, "
                    f"{len(lost)} lost against smbd, {len(bare)} of them without a citation"
                    + "".join(f"\n  lost: {name}" for name in bare[:40]),
                    len(bare),
                )
            )
        return lines

    def idle(self):
        """Returns the entries that matched no row."""
        return [e["test"] for e in self.entries if not e["hits"]]


# If more groups than this fail, the failures are no accidents.
MOST_SECOND_ATTEMPTS = 3


def worth_another_attempt(groups, rows):
    """Returns the groups with checks that failed unexpectedly, if they are few.

    A machine with other work delays programs, and some peers' checks depend on time. A server that
    panicked or ended, and a check that passed against expectation, get no second attempt.
    """
    failed = [r for r in rows if r.verdict.startswith("UNEXPECTED")]
    if any(r.verdict == "UNEXPECTED PASS" or r.name.endswith("/server-alive") for r in failed):
        return []
    found = [g for g in groups if any(r.name.startswith(g.name + "/") for r in failed)]
    return found if len(found) <= MOST_SECOND_ATTEMPTS else []


def with_second_attempt(rows, second, expectations):
    """Returns the rows with those of the second attempt in the place of the first.

    A check that passes only in the second attempt has the verdict UNSTABLE, and the detail of its failure.
    """
    for row in second:
        expectations.judge(row)
    later = {row.name: row for row in second}
    names = {row.name for row in rows}
    result = [row for row in second if row.name not in names]
    for row in rows:
        now = later.get(row.name, row)
        if row.verdict == "UNEXPECTED" and now.verdict in ("good", "expected"):
            now.verdict, now.detail = "UNSTABLE", f"failed in the first attempt: {row.detail}"
        result.append(now)
    return result


def summary(rows):
    """[(peer, counts by verdict)] in order of appearance."""
    peers = collections.OrderedDict()
    for row in rows:
        peers.setdefault("/".join(row.name.split("/")[:2]), collections.Counter())[row.verdict] += 1
    return peers


def cell(text):
    """Escapes text for a cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def write(rows, server, level, seconds, only, samba=None):
    """Writes target/interop/SERVER.{tsv,md}; returns the Markdown."""
    stem = OUT / (server + (f"-samba-{samba}" if samba else "") + ("-part" if only else ""))
    with open(stem.with_name(stem.name + ".tsv"), "w") as f:
        print("test", "result", "verdict", "seconds", "detail", sep="\t", file=f)
        for r in rows:
            print(r.name, r.result, r.verdict, f"{r.seconds:.2f}", r.detail.replace("\t", " "), sep="\t", file=f)
    lines = [
        f"# Interoperability: {'Frevo' if server == 'frevo' else 'smbd (reference)'}, {level}",
        "",
        f"{datetime.date.today()}, {len(rows)} checks in {seconds:.0f} s.",
        "",
        "| peer and variant | checks | pass | expected not to | skipped | unexpected |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, count in summary(rows).items():
        bad = count["UNEXPECTED"] + count["UNEXPECTED PASS"]
        lines.append(
            f"| {cell(name)} | {sum(count.values())} | {count['good']} | {count['expected']} "
            f"| {count['SKIPPED']} | {bad or ''} |"
        )
    odd = [r for r in rows if r.verdict != "good"]
    if odd:
        lines += ["", "| not passed | result | verdict | detail |", "|---|---|---|---|"]
        lines += [f"| {cell(r.name)} | {r.result} | {r.verdict} | {cell(r.detail)} |" for r in odd]
    text = "\n".join(lines) + "\n"
    stem.with_name(stem.name + ".md").write_text(text)
    return text
