//! `attrib`: DOS attributes and times, shown and set.

use std::ffi::OsString;
use std::time::SystemTime;

use clap::Args;
use frevo_client::{FileAttributes, Metadata, SetMetadata, Share};

use super::connection_options::Connection;
use super::failures::{Failures, each};
use super::filter::parse_when;
use super::location::{Url, join};
use super::logon::failed;
use super::output::{attributes, object};
use super::url_lines::print_each;
use super::walk::{self, Kind};
use super::wildcards;
use crate::exit::{Done, Exit, Failure};

/// `frevo attrib`
#[derive(Debug, Args)]
pub(crate) struct Attrib {
    /// Flags to set (+r) or clear (-r), alone or together (+rh): r read-only, h hidden,
    /// s system, a archive, i not indexed; and the files. Without flags, shows
    /// the attributes
    #[arg(required = true, value_name = "+FLAGS|-FLAGS|URL")]
    pub(crate) what: Vec<String>,
    /// Set the time of the last change: a date, an age such as 7d, or now
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub(crate) modified: Option<SystemTime>,
    /// Set the time of creation
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub(crate) created: Option<SystemTime>,
    /// Include all content of directories
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const LETTERS: [(char, FileAttributes); 5] = [
    ('r', FileAttributes::READONLY),
    ('h', FileAttributes::HIDDEN),
    ('s', FileAttributes::SYSTEM),
    ('a', FileAttributes::ARCHIVE),
    ('i', FileAttributes::NOT_CONTENT_INDEXED),
];

/// The attributes that can be set (MS-FSCC 2.6); the others tell the file's type.
const SETTABLE: u32 = FileAttributes::READONLY.bits()
    | FileAttributes::HIDDEN.bits()
    | FileAttributes::SYSTEM.bits()
    | FileAttributes::ARCHIVE.bits()
    | FileAttributes::TEMPORARY.bits()
    | FileAttributes::OFFLINE.bits()
    | FileAttributes::NOT_CONTENT_INDEXED.bits();

/// Replaces the minus of `-r` while clap reads the command line, which would take `-r` for an
/// option.
const MINUS: char = '\u{2212}';

/// The arguments of this program, flags that `attrib` is to take away spelled so that they are
/// no options. Its options' letters are others.
pub(crate) fn spelled(line: Vec<OsString>) -> Vec<OsString> {
    if line.first().is_none_or(|verb| verb != "attrib") {
        return line;
    }
    let is_flag = |one: char| LETTERS.iter().any(|(letter, _)| *letter == one);
    let spelled = |one: OsString| match one.to_str().and_then(|text| text.strip_prefix('-')) {
        Some(flags) if !flags.is_empty() && flags.chars().all(is_flag) => {
            format!("{MINUS}{flags}").into()
        }
        _ => one,
    };
    line.into_iter().map(spelled).collect()
}

/// The attributes to set and to clear.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Change {
    on: u32,
    off: u32,
}

impl Change {
    /// Takes `+rh` or `-a`; false if it is neither.
    fn take(&mut self, text: &str) -> bool {
        let sign = text.chars().next().filter(|one| ['+', '-', MINUS].contains(one));
        let letters = text.get(sign.map_or(0, char::len_utf8)..).unwrap_or_default();
        let bit = |letter: char| {
            let found = LETTERS.iter().find(|(one, _)| *one == letter.to_ascii_lowercase());
            found.map(|(_, bit)| bit.bits())
        };
        let bits: Option<Vec<u32>> = letters.chars().map(bit).collect();
        let Some(bits) = bits.filter(|bits| sign.is_some() && !bits.is_empty()) else {
            return false;
        };
        let bits = bits.into_iter().fold(0, |all, bit| all | bit);
        // If an attribute occurs with both signs, the last sign counts.
        let (set, unset) = match sign {
            Some('+') => (&mut self.on, &mut self.off),
            _ => (&mut self.off, &mut self.on),
        };
        *set |= bits;
        *unset &= !bits;
        true
    }

    /// The new attributes of a file. None if nothing changes.
    fn of(self, found: FileAttributes) -> Option<FileAttributes> {
        let before = found.bits() & SETTABLE;
        let after = (before | self.on) & !self.off;
        (after != before).then_some(FileAttributes::from_bits(after))
    }
}

pub(crate) async fn attrib(arguments: &Attrib) -> Done {
    let mut change = Change::default();
    let mut urls: Vec<Url> = Vec::new();
    for one in &arguments.what {
        if change.take(one) {
            continue;
        }
        let url = one.parse().map_err(|why: String| {
            let why = if one.starts_with('+') {
                format!("{one} has an unknown flag; the flags are r, h, s, a and i")
            } else {
                why
            };
            Failure::new(Exit::Usage, why)
        });
        urls.push(url?);
    }
    if urls.is_empty() {
        let text = "no file is named; write smb://USER@HOST/SHARE/PATH";
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut failures = Failures::default();
    let urls = wildcards::expand(&arguments.connection, &urls).await?;
    let process = async |url: &Url, failures: &mut Failures| {
        attrib_one(arguments, change, url, failures).await
    };
    print_each(&urls, process, &mut failures).await?;
    failures.end("processed")
}

/// Sets the attributes of a file, or of a directory with all its content; or returns the lines that
/// show them.
async fn attrib_one(
    arguments: &Attrib,
    change: Change,
    asked: &Url,
    failures: &mut Failures,
) -> Result<Vec<String>, Failure> {
    let (share, url) = &arguments.connection.reach(asked).await?;
    let metadata = share.metadata(&url.path).await.map_err(failed)?;
    let mut found = vec![(String::new(), metadata)];
    let _kept;
    if arguments.recursive && walk::kind(&metadata) == Kind::Directory {
        let see = |name: &str, metadata: &Metadata| found.push((name.to_owned(), *metadata));
        _kept = walk::remote_but(share, &url.path, see, |error| failures.note(error))
            .await
            .map_err(failed)?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let place = |top: &str, name: &str| if name.is_empty() { top.into() } else { join(top, name) };
    if change == Change::default() && arguments.modified.is_none() && arguments.created.is_none() {
        let shown = found.iter().map(|(name, metadata)| {
            let path = place(&asked.path, name);
            if arguments.connection.json {
                return object(&path, metadata).to_string();
            }
            let (found, [.., (indexed, bit)]) = (metadata.attributes(), LETTERS);
            let last = if found.contains(bit) { indexed } else { '-' };
            format!("{}{last} {}", attributes(found), asked.at(path))
        });
        return Ok(shown.collect());
    }
    let all = found.iter().map(|(name, metadata)| {
        set(share, place(&url.path, name), change.of(metadata.attributes()), arguments)
    });
    each(all, failures).await.map(|()| Vec::new())
}

async fn set(
    share: &Share,
    path: String,
    attributes: Option<FileAttributes>,
    arguments: &Attrib,
) -> frevo_client::Result<()> {
    let Attrib { created, modified, .. } = *arguments;
    let basic = SetMetadata::new().created(created).modified(modified).attributes(attributes);
    if basic == SetMetadata::default() {
        return Ok(());
    }
    share.set_metadata(&path, &basic).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_order() {
        let of = |all: &[&str]| {
            let mut change = Change::default();
            assert!(all.iter().all(|one| change.take(one)), "{all:?}");
            change
        };
        assert_eq!(of(&["+r", "-h"]), Change { on: 1, off: 2 });
        assert_eq!(of(&["+rHs", "-r"]), Change { on: 6, off: 1 });
        for wrong in ["+", "-", "r", "+rx", "--json", "smb://h/s", ""] {
            assert!(!Change::default().take(wrong), "{wrong}");
        }
        let change = of(&["+r", "-h"]);
        let archive = FileAttributes::ARCHIVE;
        let hidden = FileAttributes::HIDDEN | FileAttributes::DIRECTORY | archive;
        assert_eq!(change.of(hidden), Some(FileAttributes::READONLY | archive));
        assert_eq!(change.of(FileAttributes::READONLY | archive), None);
        assert_eq!(of(&["-h"]).of(FileAttributes::HIDDEN), Some(FileAttributes::from_bits(0)));
    }
}
