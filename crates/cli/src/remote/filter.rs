//! Filters of files: patterns of names and limits of time.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::Args;
use frevo_mount::names::{Spelling, from_wire};

/// The filter of the files of a directory tree.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selecting files")]
pub(crate) struct Filter {
    /// Skip files and directories that match PATTERN: a name with * ? [a-z], or a
    /// path below the source with ** for any directories; ignores case; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<Glob>,
    /// Copy files that match PATTERN even if --exclude does; without --exclude,
    /// copy no others; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<Glob>,
    /// Copy only files changed after WHEN: a date, or an age such as 36h or 7d
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub(crate) newer_than: Option<SystemTime>,
    /// Copy only files not changed after WHEN
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub(crate) older_than: Option<SystemTime>,
}

impl Filter {
    /// True for a filter that passes every file.
    pub(crate) fn is_all(&self) -> bool {
        let patterns = self.exclude.is_empty() && self.include.is_empty();
        patterns && self.newer_than.is_none() && self.older_than.is_none()
    }

    /// True when the patterns pass `name`, a path below the source as the wire spells it.
    pub(crate) fn names(&self, name: &str, is_dir: bool) -> bool {
        if self.exclude.is_empty() && self.include.is_empty() {
            return true;
        }
        let parts: Vec<Vec<char>> = name
            .split('/')
            .map(|part| folded(&from_wire(part, Spelling::Mapped)).collect())
            .collect();
        let fits = |globs: &[Glob]| globs.iter().any(|glob| glob.fits(&parts, is_dir));
        if fits(&self.include) {
            return true;
        }
        // A directory whose own name does not match is entered nevertheless, because files in it
        // may match.
        !fits(&self.exclude) && (is_dir || self.include.is_empty() || !self.exclude.is_empty())
    }

    /// True when patterns and times pass a file that was changed last at `modified`.
    pub(crate) fn passes(&self, name: &str, is_dir: bool, modified: SystemTime) -> bool {
        let in_time = self.newer_than.is_none_or(|time| modified > time)
            && self.older_than.is_none_or(|time| modified <= time);
        (is_dir || in_time) && self.names(name, is_dir)
    }
}

fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

/// A pattern of names, or of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Vec<Part>,
    /// True for a pattern of paths; false for one of names in any directory.
    is_path: bool,
    is_dir: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any number of directories: `**`.
    Any,
    Name(Vec<One>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum One {
    Is(char),
    Any,
    Many,
    /// A character in one of the ranges (true), or in none of them (false).
    In(bool, Vec<(char, char)>),
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_dir = text.ends_with('/');
        let bare = text.trim_end_matches('/');
        let is_path = bare.contains('/');
        let bare = bare.trim_start_matches('/');
        if bare.is_empty() {
            return Err(String::from("the pattern is empty"));
        }
        let parts = bare.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(part).collect::<Result<Vec<Part>, String>>()?;
        Ok(Self { parts, is_path, is_dir })
    }
}

fn part(text: &str) -> Result<Part, String> {
    if text == "**" {
        return Ok(Part::Any);
    }
    let folded: Vec<char> = folded(text).collect();
    let mut rest = &*folded;
    let mut all = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        all.push(match first {
            '*' => One::Many,
            '?' => One::Any,
            '[' => {
                let negated = matches!(rest.first(), Some('!' | '^'));
                rest = rest.get(usize::from(negated)..).unwrap_or_default();
                // As the first character of a set, a closing bracket is an ordinary character.
                let end = rest.iter().skip(1).position(|one| *one == ']').map(|at| at + 1);
                let end = end.ok_or_else(|| format!("{text}: the bracket [ is not closed"))?;
                let (set, after) = rest.split_at(end);
                rest = after.get(1..).unwrap_or_default();
                One::In(!negated, ranges(set))
            }
            one => One::Is(*one),
        });
    }
    Ok(Part::Name(all))
}

fn ranges(mut set: &[char]) -> Vec<(char, char)> {
    let mut all = Vec::new();
    while let Some((first, after)) = set.split_first() {
        set = after;
        let mut last = *first;
        if let ['-', end, rest @ ..] = set {
            (last, set) = (*end, rest);
        }
        all.push((*first, last));
    }
    all
}

impl Glob {
    fn fits(&self, path: &[Vec<char>], is_dir: bool) -> bool {
        if self.is_dir && !is_dir {
            return false;
        }
        match (self.is_path, self.parts.as_slice(), path.last()) {
            (false, [Part::Name(name)], Some(last)) => fits_name(name, last),
            _ => fits_path(&self.parts, path),
        }
    }
}

fn fits_path(parts: &[Part], path: &[Vec<char>]) -> bool {
    let is_many = |part: &Part| *part == Part::Any;
    fits_all(parts, path, is_many, |part, name| match part {
        Part::Any => true,
        Part::Name(pattern) => fits_name(pattern, name),
    })
}

fn fits_name(pattern: &[One], name: &[char]) -> bool {
    let is_many = |wanted: &One| *wanted == One::Many;
    fits_all(pattern, name, is_many, |wanted, one| match wanted {
        One::Any | One::Many => true,
        One::Is(wanted) => wanted == one,
        One::In(wanted, ranges) => {
            ranges.iter().any(|(first, last)| (first..=last).contains(&one)) == *wanted
        }
    })
}

/// True when `text` matches `pattern`, where an element that `is_many` matches any number of
/// elements. Backtracks to the last such element only, so the time is bounded by the product of
/// both lengths for all paths that a server can have.
fn fits_all<P, T>(
    pattern: &[P],
    text: &[T],
    is_many: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut here) = (0, 0);
    let mut many: Option<(usize, usize)> = None;
    while let Some(one) = text.get(here) {
        match pattern.get(at) {
            Some(wanted) if is_many(wanted) => {
                many = Some((at, here));
                at += 1;
            }
            Some(wanted) if fits(wanted, one) => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((from, taken)) = many else { return false };
                many = Some((from, taken + 1));
                (at, here) = (from + 1, taken + 1);
            }
        }
    }
    pattern.get(at..).is_none_or(|rest| rest.iter().all(is_many))
}

/// `now`, `36h`, `7d`, `2026-11-22`, `2026-11-22T10:00`, `2026-11-22T10:00:00Z`.
pub(crate) fn parse_when(text: &str) -> Result<SystemTime, String> {
    let wrong = || format!("{text} is not a date such as 2026-11-22, or an age such as 36h or 7d");
    if text == "now" {
        return Ok(SystemTime::now());
    }
    let (digits, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    if let (Some(seconds), Ok(count)) = (seconds, digits.parse::<u64>()) {
        let ago = count.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)?;
        return SystemTime::now().checked_sub(ago).ok_or_else(wrong);
    }
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return Ok(stamp.into());
    }
    let local = text.parse::<jiff::civil::DateTime>().map_err(|_| wrong())?;
    let zoned = local.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| wrong())?;
    Ok(zoned.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(exclude: &[&str], include: &[&str]) -> Filter {
        let globs = |all: &[&str]| all.iter().map(|text| text.parse().unwrap()).collect();
        Filter { exclude: globs(exclude), include: globs(include), ..Filter::default() }
    }

    fn fits(pattern: &str, name: &str) -> bool {
        !filter(&[pattern], &[]).names(name, name.ends_with("dir"))
    }

    #[test]
    fn patterns_of_names_and_of_paths() {
        for (pattern, name) in [
            ("*.tmp", "a/b/X.TMP"),
            ("cache", "a/Cache"),
            ("a/*/c", "a/b/c"),
            ("/top", "top"),
            ("**/c", "a/b/c"),
            ("a/**", "a/b/c"),
            ("a/**/d", "a/d"),
            ("some dir/", "x/some dir"),
            ("[a-c]?[!0-9]", "b0x"),
            ("*a*b*", "xxaxxbxx"),
            ("who?", "who\u{f025}"),
            ("[]]", "]"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.tmp", "a.tmp/b"),
            ("a/*", "a/b/c"),
            ("/top", "a/top"),
            ("some/", "some"),
            ("[a-c]?[!0-9]", "b00"),
            ("*a*b", "ab0"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        assert!("[a".parse::<Glob>().is_err() && "/".parse::<Glob>().is_err());
        // A naive matcher would take exponential time for these patterns.
        assert!(!fits(&"*a".repeat(40), &"a".repeat(39).replace('a', "ab")));
        assert!(!fits(&format!("{}b", "**/a/".repeat(40)), &"a/".repeat(1_000)));
    }

    #[test]
    fn what_is_included_is_not_excluded() {
        let some = filter(&["*.o", "target"], &["keep.o"]);
        assert!(some.names("a/keep.o", false) && some.names("a/x", false));
        assert!(!some.names("a/x.o", false) && !some.names("target", true));
        let only = filter(&[], &["*.jpg"]);
        assert!(only.names("a/x.JPG", false) && only.names("a", true));
        assert!(!only.names("a/x.png", false));
        assert!(Filter::default().is_all() && !only.is_all());
    }

    #[test]
    fn times_and_times_ago() {
        let now = SystemTime::now();
        let ago = |text: &str| now.duration_since(parse_when(text).unwrap()).unwrap_or_default();
        assert!((ago("36h").as_secs_f64() - 129_600.0).abs() < 5.0);
        assert_eq!(ago("2w").as_secs() / 86_400, 13, "a little less has passed since");
        let stamp = parse_when("2001-09-09T01:46:40Z").unwrap();
        assert_eq!(stamp, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        assert!(parse_when("2026-11-22").is_ok() && parse_when("2026-11-22T10:00").is_ok());
        for wrong in ["", "d", "yesterday", "99999999999999999999d", "18446744073709551615w", "é"]
        {
            assert!(parse_when(wrong).is_err(), "{wrong}");
        }
        let newer = Filter { newer_than: Some(stamp), ..Filter::default() };
        assert!(!newer.passes("x", false, stamp) && newer.passes("x", true, stamp));
        assert!(newer.passes("x", false, now));
        let older = Filter { older_than: Some(stamp), ..Filter::default() };
        assert!(older.passes("x", false, stamp) && !older.passes("x", false, now));
    }
}
