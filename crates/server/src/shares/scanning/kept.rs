//! The results of scans over a restart of the server, as a text.
//!
//! They are not kept in attributes of the files: to set one changes the time of the file's last change, by
//! which a result is recognised.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use frevo_store::FileKey;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;

use super::results::{Finding, Kept};
use super::scanner;
use crate::base::limits::SCAN_RESULTS;

/// The first line of the text.
const HEAD: &str = "frevo scan results 1";

/// Results by the files that they are of.
type Results = Vec<(FileKey, Kept)>;

/// Results of services that no scanner has at the moment, by the names of the services.
static WITHOUT_SCANNER: LazyLock<Mutex<HashMap<String, Results>>> = LazyLock::new(Mutex::default);

/// Returns the results that are remembered for all services of the process.
pub fn remembered() -> String {
    let mut text = format!("{HEAD}\n");
    let mut add = |service: &str, results: &[(FileKey, Kept)]| {
        let _ = writeln!(text, "service {service}");
        results.iter().for_each(|(key, kept)| add_line(&mut text, *key, kept));
    };
    scanner::all().iter().for_each(|scanner| add(&scanner.name(), &scanner.results()));
    WITHOUT_SCANNER.lock().iter().for_each(|(service, results)| add(service, results));
    text
}

fn add_line(text: &mut String, key: FileKey, kept: &Kept) {
    let FileKey { device, inode, stream } = key;
    let Kept { changed: FileTime(changed), signatures, found } = kept;
    let found = match found {
        Finding::Nothing => "nothing",
        Finding::Virus(name) => &**name,
        Finding::Blocked | Finding::Unscanned => return,
    };
    let kind = if matches!(kept.found, Finding::Virus(_)) { "virus" } else { "clean" };
    let _ = writeln!(text, "{device} {inode} {stream} {changed} {signatures} {kind} {found}");
}

/// Remembers the results of a text that [`remembered`] has returned, for services that shares name from now on.
/// A text of another version, and lines that make no sense, are left out.
pub fn remember(text: &str) {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return;
    }
    let mut services: HashMap<String, Vec<(FileKey, Kept)>> = HashMap::new();
    let mut service = String::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("service ") {
            name.clone_into(&mut service);
        } else if let Some(result) = parse(line) {
            let results = services.entry(service.clone()).or_default();
            if results.len() < SCAN_RESULTS {
                results.push(result);
            }
        }
    }
    WITHOUT_SCANNER.lock().extend(services);
}

fn parse(line: &str) -> Option<(FileKey, Kept)> {
    let mut words = line.splitn(7, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (device, inode, stream) = (number()?, number()?, number()?);
    let (changed, signatures) = (FileTime(number()?), number()?);
    let found = match (words.next()?, words.next()?) {
        ("clean", _) => Finding::Nothing,
        ("virus", name) => Finding::Virus(name.into()),
        _ => return None,
    };
    Some((FileKey { device, inode, stream }, Kept { changed, signatures, found }))
}

/// Takes the results of a service that gets a scanner.
pub(super) fn take(service: &str) -> Vec<(FileKey, Kept)> {
    WITHOUT_SCANNER.lock().remove(service).unwrap_or_default()
}

/// Keeps the results of a service that loses its scanner.
pub(super) fn put_back(service: String, results: Vec<(FileKey, Kept)>) {
    if !results.is_empty() {
        WITHOUT_SCANNER.lock().insert(service, results);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_are_written() {
        let key = FileKey { device: 1, inode: u64::MAX, stream: 3 };
        for found in [Finding::Nothing, Finding::Virus("Win.Test a b".into())] {
            let kept = Kept { changed: FileTime(5), signatures: u64::MAX, found };
            let mut text = String::new();
            add_line(&mut text, key, &kept);
            let (read_key, read) = parse(text.trim_end()).unwrap();
            assert_eq!((read_key, read.changed, read.signatures), (key, FileTime(5), u64::MAX));
            assert_eq!(read.found, kept.found);
        }
        for line in
            ["", "1 2 3", "1 2 3 4 5 odd x", "a 2 3 4 5 clean nothing", "1 2 3 4 -5 clean x"]
        {
            assert!(parse(line).is_none(), "{line}");
        }
        remember("another program\nservice test of odd lines\n1 2 3 4 5 clean nothing\n");
        assert!(take("test of odd lines").is_empty());
        remember(&format!("{HEAD}\nservice test of lines\n1 2 3 4 5 clean nothing\n?\n"));
        assert!(remembered().contains("service test of lines\n1 2 3 4 5 clean nothing\n"));
        assert_eq!(take("test of lines").len(), 1);
        assert!(take("test of lines").is_empty());
    }
}
