//! Reports of copies: planned actions, skipped files, the summary.

use indicatif::BinaryBytes;
use serde_json::json;

use super::failures::Failures;
use super::output::line;
use super::progress::Progress;
use crate::console::tell;
use crate::exit;
use crate::plural::counted;

/// Prints an action of a dry run. False when the reader of the output is gone.
pub(crate) fn planned(json: bool, action: &str, path: &str) -> bool {
    if json {
        return line(json!({ "action": action, "path": path }));
    }
    line(format_args!("{action:<7}{path}"))
}

/// Prints the totals of a dry run as a note. Readers of JSON count its objects.
pub(crate) fn planned_total(files: u64, bytes: u64, others: u64) {
    if exit::is_json() {
        return;
    }
    if files == 0 && others == 0 {
        return tell("dry run: nothing to do");
    }
    let others = match others {
        0 => String::new(),
        others => format!("; {}", counted(others, "other change")),
    };
    let (files, bytes) = (counted(files, "file"), BinaryBytes(bytes));
    tell(format_args!("dry run: {files} to copy, {bytes}{others}"));
}

/// Prints a note about skipped entries of a kind, such as "links and special files", if there are any.
pub(crate) fn tell_skipped(kind: &str, skipped: &[String]) {
    let Some((first, rest)) = skipped.split_first() else { return };
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tell(format_args!("skipped {kind}: {first}{more}"));
}

/// Prints the summary of a copy: as JSON, or on a terminal as text. `idle` is the text for a copy
/// without files.
pub(crate) fn report(json: bool, progress: &Progress, failures: &Failures, idle: &str) {
    progress.finish();
    if progress.files() == 0 && !failures.is_empty() {
        return;
    }
    let (files, bytes, seconds) = (progress.files(), progress.bytes(), progress.seconds());
    if json {
        let by_server = progress.bytes_by_server();
        line(json!({
            "files": files, "bytes": bytes, "seconds": seconds, "bytes_by_server": by_server,
            "failed": failures.count(), "up_to_date": progress.up_to_date(),
        }));
    } else if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        let same = progress.up_to_date();
        if files == 0 && same > 0 {
            let are = if same == 1 { "is" } else { "are" };
            return tell(format_args!("{} {are} already up to date", counted(same, "file")));
        }
        if files == 0 {
            return tell(idle);
        }
        // The cast turns a float that is too large into u64::MAX.
        let rate = BinaryBytes((bytes as f64 / seconds.max(1e-6)) as u64);
        let (files, bytes) = (counted(files, "file"), BinaryBytes(bytes));
        let skipped = match same {
            0 => String::new(),
            same => format!("; {} up to date", counted(same, "file")),
        };
        tell(format_args!("{files}, {bytes} in {seconds:.1} s, {rate}/s{skipped}"));
    }
}
