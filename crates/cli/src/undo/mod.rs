//! `frevo undo`: the way back after a session has changed files as ransomware does.
//!
//! The journal of the share's brake tells what the session changed, the recycle bin and the snapshots have
//! the data from before. [`plan`] decides without I/O; [`files`] looks at the share's folder.

mod files;
mod journal;
mod plan;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use frevo_config::{Config, ShareSection};
use frevo_server::share::RecycleBin;
use frevo_store::Vfs;

use crate::config_sources::Sources;
use crate::configured::folder;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;
use crate::state::{self, DEFAULT_CONFIG};
use files::Files;
use journal::{Entry, Journal, session_id};
use plan::{Plan, Step, plan};

/// `frevo undo`
#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// Configuration file of the server
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    config: PathBuf,

    /// Session whose changes are undone, as `frevo brake` and the audit log show it
    #[arg(long, value_name = "ID")]
    session: String,

    /// Share [default: all that have a brake]
    #[arg(long, value_name = "NAME")]
    share: Option<String>,

    /// List what would be done, and change nothing
    #[arg(long)]
    list: bool,
}

pub(crate) const UNDO_HELP: &str = "\
Only shares with [share.brake] have a journal of changes. Files come back from the recycle bin and from \
snapshots; new files of the session are left. Run it as the user of the server, on its machine, while the \
client is held or away; `frevo brake release` comes afterwards.

Exit codes: 0 ok, 1 failed, or something could not be undone, 2 usage, 3 bad configuration, 6 not found";

pub(crate) fn run(undo: &Undo) -> Done {
    let config = Sources::read(&undo.config)?.config()?;
    let session = session_id(&undo.session).ok_or_else(|| {
        let text = format!("\"{}\" is no id of a session, such as 0x1f00", undo.session);
        Failure::new(Exit::Usage, text)
    })?;
    let is_meant = |share: &&ShareSection| {
        let name = share.name.get_ref();
        undo.share.as_ref().is_none_or(|wanted| name.as_str().eq_ignore_ascii_case(wanted))
    };
    let shares: Vec<&ShareSection> =
        config.shares.iter().filter(is_meant).filter(|share| share.brake.is_some()).collect();
    if shares.is_empty() {
        let text = "no such share has a brake in the configuration, and so a journal";
        return Err(Failure::new(Exit::NotFound, text));
    }
    let mut all = Undone::default();
    for share in shares {
        all.add(of_share(&config, share, session, undo.list)?);
    }
    if !all.has_found {
        let text = format!("no journal has a change of session {}", undo.session);
        return Err(Failure::new(Exit::NotFound, text));
    }
    print(all.text.as_bytes())?;
    match all.left {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "1 file could not be brought back")),
        left => Err(Failure::new(Exit::Failed, format!("{left} files could not be brought back"))),
    }
}

/// The lines about what was undone.
#[derive(Debug, Default)]
struct Undone {
    text: String,
    left: usize,
    has_found: bool,
}

impl Undone {
    fn add(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.left += other.left;
        self.has_found |= other.has_found;
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(&printable(line));
        self.text.push('\n');
    }
}

fn of_share(
    config: &Config,
    share: &ShareSection,
    session: u64,
    only_lists: bool,
) -> Result<Undone, Failure> {
    let name = share.name.get_ref().as_str();
    let path = state::brake_journal_of(config, name);
    let journal = Journal::read(&path)
        .map_err(Failure::failed(format!("cannot read the journal {}", path.display())))?;
    let mut undone = Undone::default();
    let Some(own) = journal.entries.iter().find(|entry| entry.session == session) else {
        return Ok(undone);
    };
    undone.has_found = true;
    let is_of_all = share.user_part().is_none();
    let entries: Vec<Entry> =
        journal.entries.iter().filter(|one| is_of_all || one.user == own.user).cloned().collect();
    let files = Files {
        vfs: vfs_of(share, &own.user)?,
        bin_of: share.recycle.as_ref().map(|recycle| bin_of(recycle.folder.as_str())),
        only_lists,
    };
    undone.line(&format!("share {name}, session {session:#x} of {}:", own.user));
    if journal.lost > 0 {
        undone.line(&format!("  {} changes are not in the journal", journal.lost));
    }
    carry_out(&files, &plan(&entries, session), &mut undone);
    Ok(undone)
}

fn carry_out(files: &Files, plan: &Plan, undone: &mut Undone) {
    for step in &plan.steps {
        let path = match step {
            Step::MoveBack { from, to, .. } => format!("{from} to {to}"),
            Step::Rewrite { path, .. } | Step::BringBack { path, .. } => path.clone(),
        };
        match files.carry_out(step) {
            Ok(done) => undone.line(&format!("  {path}: {done}")),
            Err(why) => {
                undone.left += 1;
                undone.line(&format!("  {path}: cannot be brought back: {why}"));
            }
        }
    }
    for left in &plan.left {
        undone.left += 1;
        undone.line(&format!("  {}: left as it is: {}", left.path, left.why));
    }
    for path in &plan.made {
        undone.line(&format!("  {path}: a new file of the session, left as it is"));
    }
}

/// The folder of a share, or that of its user.
fn vfs_of(share: &ShareSection, user: &str) -> Result<Arc<dyn Vfs>, Failure> {
    if share.user_part().is_some() {
        let found = folder::of_users(share).and_then(|folders| folders.of(user));
        return found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("the folder of {user} cannot be opened"))
        });
    }
    folder::open(share).map_err(Failure::failed("cannot open the folder of the share"))
}

/// The folder in which an account's removed files are.
fn bin_of(folder: &str) -> Box<dyn Fn(&str) -> String> {
    let bin = RecycleBin { folder: folder.to_owned(), ..RecycleBin::default() };
    Box::new(move |user| format!("{}/{}", bin.folder, bin.folder_of(user)))
}
