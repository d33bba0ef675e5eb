//! `frevo undo`: the way back after a session has changed files as ransomware does.
//!
//! The journal of the share's brake tells what the session changed, the recycle bin and the snapshots have
//! the data from before. [`plan`] decides without I/O; [`files`] looks at the share's folder.

mod files;
mod journal;
mod plan;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use frevo_config::{Config, ShareSection};
use frevo_server::share::RecycleBin;
use frevo_store::Vfs;
use frevo_store::snapshot::Moment;
use frevo_wire::dtyp::FileTime;
use serde_json::json;

use crate::config_sources::Sources;
use crate::configured::folder;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;
use crate::state::{self, DEFAULT_CONFIG};
use files::{BinOf, Files};
use journal::{Entry, Journal, session_id};
use plan::{Plan, Step, plan};

/// `frevo undo`
#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// Configuration file of the server
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    config: PathBuf,

    /// Session whose changes are undone, as `frevo brake` and the audit log show it; several sessions
    /// of one attack are undone together
    #[arg(long = "session", value_name = "ID", required = true)]
    sessions: Vec<String>,

    /// Time of the first change that is undone: a date such as 2026-11-22T10:00, or an age such as 2h
    /// [default: an hour before the last change of these sessions]
    #[arg(long, value_name = "WHEN", value_parser = crate::remote::filter::parse_when)]
    since: Option<SystemTime>,

    /// Share [default: all that have a brake]
    #[arg(long, value_name = "NAME")]
    share: Option<String>,

    /// List what would be done, and change nothing
    #[arg(long)]
    list: bool,

    /// Print JSON, one object per line: of each share, then of each file
    #[arg(long)]
    json: bool,
}

pub(crate) const UNDO_HELP: &str = "\
Only shares with [share.brake] have a journal of changes. Files come back from the recycle bin and from \
snapshots; new files of the session are left. Look at --list first: from --since on all changes of the session \
are undone, not those of the attack alone. Run it as the user of the server, on its machine, while the \
client is held or away; `frevo brake release` comes afterwards.

Exit codes: 0 ok, 1 failed, or something could not be undone, 2 usage, 3 bad configuration, 6 not found";

pub(crate) fn run(undo: &Undo) -> Done {
    let config = Sources::read(&undo.config)?.config()?;
    let sessions: Vec<u64> = undo.sessions.iter().map(|id| parsed(id)).collect::<Result<_, _>>()?;
    let since = undo.since.map(second).transpose()?;
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
    let mut all = Undone { is_json: undo.json, ..Undone::default() };
    for share in shares {
        let wanted = Wanted { sessions: &sessions, since, only_lists: undo.list };
        of_share(&config, share, &wanted, &mut all)?;
    }
    if !all.has_found {
        let text = format!("no journal has a change of session {}", undo.sessions.join(", "));
        return Err(Failure::new(Exit::NotFound, text));
    }
    print(all.text.as_bytes())?;
    match all.left {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "1 file could not be brought back")),
        left => Err(Failure::new(Exit::Failed, format!("{left} files could not be brought back"))),
    }
}

fn parsed(id: &str) -> Result<u64, Failure> {
    session_id(id).ok_or_else(|| {
        let text = format!("\"{id}\" is no id of a session, such as 0x1f00");
        Failure::new(Exit::Usage, text)
    })
}

/// The second of a time.
fn second(time: SystemTime) -> Result<Moment, Failure> {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(seconds).ok().map(|seconds| FileTime::from_unix(seconds, 0));
    let moment = time.and_then(Moment::of);
    moment.ok_or_else(|| Failure::new(Exit::Usage, "--since is a time of no calendar"))
}

/// The second an hour earlier: the brake looks no further back either.
fn an_hour_before(moment: Moment) -> Moment {
    let (seconds, _) = moment.time().to_unix();
    Moment::of(FileTime::from_unix(seconds.saturating_sub(3_600), 0)).unwrap_or(moment)
}

/// The changes that are undone.
struct Wanted<'a> {
    sessions: &'a [u64],
    since: Option<Moment>,
    only_lists: bool,
}

/// The lines about what was undone.
#[derive(Debug, Default)]
struct Undone {
    text: String,
    left: usize,
    has_found: bool,
    is_json: bool,
}

/// The outcome of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is as before, or would be.
    Done,
    /// It cannot be brought back.
    Failed,
    /// It is left because somebody else has changed it.
    Left,
    /// It is a new file of the session.
    New,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Left => "left",
            Self::New => "new",
        }
    }
}

impl Undone {
    fn line(&mut self, line: &str) {
        self.text.push_str(&printable(line));
        self.text.push('\n');
    }

    /// Adds a share, whose files follow.
    fn share(&mut self, share: &str, own: &Entry, since: Moment, lost: u64) {
        self.has_found = true;
        let session = format!("{:#x}", own.session);
        if self.is_json {
            let since = since.to_string();
            let user = &own.user;
            let object = json!({ "share": share, "session": session, "user": user, "since": since, "lost": lost });
            return self.text.push_str(&format!("{object}\n"));
        }
        self.line(&format!("share {share}, session {session} of {}, since {since}:", own.user));
        if lost > 0 {
            self.line(&format!("  {lost} changes are not in the journal"));
        }
    }

    /// Adds a file. `from` is the name that it had got.
    fn file(&mut self, path: &str, from: Option<&str>, outcome: Outcome, detail: &str) {
        self.left += usize::from(matches!(outcome, Outcome::Failed | Outcome::Left));
        if self.is_json {
            let outcome = outcome.name();
            let object =
                json!({ "path": path, "from": from, "outcome": outcome, "detail": detail });
            return self.text.push_str(&format!("{object}\n"));
        }
        let path = from.map_or_else(|| path.to_owned(), |from| format!("{from} to {path}"));
        self.line(&match outcome {
            Outcome::Done => format!("  {path}: {detail}"),
            Outcome::Failed => format!("  {path}: cannot be brought back: {detail}"),
            Outcome::Left => format!("  {path}: left as it is: {detail}"),
            Outcome::New => format!("  {path}: a new file of the session, left as it is"),
        });
    }
}

fn of_share(
    config: &Config,
    share: &ShareSection,
    wanted: &Wanted<'_>,
    undone: &mut Undone,
) -> Done {
    let name = share.name.get_ref().as_str();
    let path = state::brake_journal_of(config, name);
    let journal = Journal::read(&path)
        .map_err(Failure::failed(format!("cannot read the journal {}", path.display())))?;
    let own = journal.entries.iter().filter(|entry| wanted.sessions.contains(&entry.session));
    let Some(own) = own.max_by_key(|entry| entry.at) else {
        return Ok(());
    };
    let since = wanted.since.unwrap_or_else(|| an_hour_before(own.at));
    let is_of_all = share.user_part().is_none();
    let entries: Vec<Entry> =
        journal.entries.iter().filter(|one| is_of_all || one.user == own.user).cloned().collect();
    let files = Files {
        vfs: vfs_of(share, &own.user)?,
        bin_of: share.recycle.as_ref().map(|recycle| bin_of(recycle.folder.as_str())),
        only_lists: wanted.only_lists,
    };
    undone.share(name, own, since, journal.lost);
    carry_out(&files, &plan(&entries, wanted.sessions, since), undone);
    Ok(())
}

fn carry_out(files: &Files, plan: &Plan, undone: &mut Undone) {
    for step in &plan.steps {
        let (path, from) = match step {
            Step::MoveBack { from, to, .. } => (to, Some(&**from)),
            Step::Rewrite { path, .. } | Step::BringBack { path, .. } => (path, None),
        };
        let (outcome, detail) = match files.carry_out(step) {
            Ok(done) => (Outcome::Done, done),
            Err(why) => (Outcome::Failed, why),
        };
        undone.file(path, from, outcome, &detail);
    }
    for left in &plan.left {
        undone.file(&left.path, None, Outcome::Left, &left.why);
    }
    for path in &plan.made {
        undone.file(path, None, Outcome::New, "a new file of the session, left as it is");
    }
}

/// The folder of a share, or that of its user.
fn vfs_of(share: &ShareSection, user: &str) -> Result<Arc<dyn Vfs>, Failure> {
    // A link that the session made must not lead to another file.
    let share = &ShareSection { follow_symlinks: false, ..share.clone() };
    if share.user_part().is_some() {
        let found = folder::of_users(share).and_then(|folders| folders.of(user));
        return found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("the folder of {user} cannot be opened"))
        });
    }
    folder::open(share).map_err(Failure::failed("cannot open the folder of the share"))
}

/// The folder in which an account's removed files are.
fn bin_of(folder: &str) -> BinOf {
    let bin = RecycleBin { folder: folder.to_owned(), ..RecycleBin::default() };
    Box::new(move |user| format!("{}/{}", bin.folder, bin.folder_of(user)))
}
