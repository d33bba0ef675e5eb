//! File system checks in one program.
//!
//! `frevo-guest-checks run DIR REPORT` works in DIR, a mount, writes a line
//! `ok|FAIL NAME SECONDS [DETAIL]` per check to REPORT, and leaves the tree
//! `DIR/left` behind.  `frevo-guest-checks verify DIR REPORT` then runs on the
//! server's disk: names, sizes, bytes and times there must be those that the
//! mount was given; both sides compute them.
//!
//! In User Mode Linux a fork costs 12 ms, so one program does all the work.
#![forbid(unsafe_code)]

mod check;
mod checks;
mod left;
mod posix;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use check::Check;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, verb, dir, report] = args.as_slice() else {
        return usage();
    };
    let dir = Path::new(dir);
    let checks: &[Check] = match verb.as_str() {
        "run" => checks::ALL,
        "verify" => left::VERIFY,
        "posix" => posix::ALL,
        "lock" | "share" => {
            return match checks::try_lock(dir, verb == "lock") {
                Ok(code) => ExitCode::from(code),
                Err(error) => {
                    eprintln!("frevo-guest-checks: {}: {error}", dir.display());
                    ExitCode::FAILURE
                }
            };
        }
        _ => return usage(),
    };
    match File::create(report).and_then(|file| run(checks, dir, file)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("frevo-guest-checks: {report}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("frevo-guest-checks run|verify|posix DIR REPORT");
    ExitCode::from(2)
}

/// Runs every check, also after failures; returns true if all succeeded.
fn run(checks: &[Check], dir: &Path, mut report: File) -> io::Result<bool> {
    let mut good = true;
    for (name, check) in checks {
        let began = Instant::now();
        let outcome = check(dir);
        let seconds = began.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => writeln!(report, "ok {name} {seconds:.2}")?,
            Err(error) => {
                good = false;
                writeln!(report, "FAIL {name} {seconds:.2} {error}")?;
            }
        }
    }
    Ok(good)
}
