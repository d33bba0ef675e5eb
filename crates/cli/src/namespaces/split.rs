//! `frevo namespace split`: moves a folder of a namespace's root to another share of this server, and leaves
//! a link at its place.
//!
//! The steps are in the order in which a crash between any two of them loses nothing, and a second call goes
//! on: the split is noted ([`staging`]); the link is there, offline; the folder is aside, where no client
//! reaches it; its files go to the other share ([`move_files`]); the link is online.

mod contents;
mod folder;
mod link;
mod move_files;
mod opened;
mod plan;
mod removal;
mod staging;
mod stops;
mod streams;
mod told;
mod tree;

use std::cell::Cell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use frevo_config::Config;
use serde_json::json;

use crate::admin::running_server::{OpenFile, RunningServer};
use crate::config_sources::Sources;
use crate::configured;
use crate::console::{print_text, tell};
use crate::exit::{Done, Exit, Failure, is_json};
use crate::plural::counted;
use crate::share_guards::ShareGuards;
use link::LinkState;
use move_files::Way;
use plan::{Plan, Wanted};
use staging::Staging;
use stops::stop_at;
use streams::{Pair, Sides};
use tree::{Size, mount_of};

/// Rounds in which files that clients open again are closed.
const ROUNDS: usize = 10;

pub(super) const HELP: &str = "\
PATH is the namespace and a folder in it, such as files/teams/red; the namespace must be a share. \
Clients are told that the link is offline while the files move: a moment in one file system, the time of \
a copy between two. A call that was interrupted goes on when it is made again.

Exit codes: 0 ok, 1 failed or files are open, 2 usage, 3 bad configuration, 5 the server cannot be asked, \
6 not found, 130 interrupted";

/// `frevo namespace split`
#[derive(Debug, Args)]
pub(super) struct Split {
    /// The folder: the namespace and the path below its root, such as files/teams/red
    path: String,

    /// Share that the folder moves to, or a new folder in it (SHARE/FOLDER)
    #[arg(long, value_name = "SHARE")]
    to: String,

    /// Name of this server in the link [default: the first of target_names, or name]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,

    /// Comment of the link
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,

    /// Close files that clients have open in the folder
    #[arg(long)]
    even_if_open: bool,

    /// Check everything, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Admin socket of the server [default: that of the configuration]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// A split with all that it needs.
struct Work<'a> {
    config_file: &'a Path,
    arguments: &'a Split,
    config: Config,
    plan: Plan,
    /// None if no server runs.
    server: Option<RunningServer>,
    /// Keep servers from starting meanwhile, if none runs.
    _guards: Option<ShareGuards>,
    /// Open files that were closed.
    closed: Cell<usize>,
}

/// Lets the program have as many files open as the system permits: a deep tree takes two for each level.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the old limit a tree that is too deep is an error.
    let _ = setrlimit(Resource::Nofile, limit);
}

pub(super) fn run(config_file: &Path, arguments: &Split) -> Done {
    raise_descriptors();
    let config = Sources::read(config_file)?.config()?;
    let Split { path, to, server_name, .. } = arguments;
    let plan = Plan::new(&config, &Wanted { path, to, server_name: server_name.as_deref() })?;
    let state = link::state_of(&config, &plan)?;
    let staging = Staging::find(&plan)?;
    // An administrator may have set the link online while files were left.
    let has_rest = staging.as_ref().map(Staging::has_rest).transpose()?.unwrap_or(false);
    if staging.is_none() && state != LinkState::Absent {
        let text = format!("{} is a link already", shown(&plan));
        return Err(Failure::new(Exit::Failed, text));
    }
    let is_aside = staging.as_ref().map(Staging::is_aside).transpose()?.unwrap_or(false);
    let is_moved = state == LinkState::Online && !has_rest && (is_aside || is_away(&plan)?);
    let size = if is_aside || is_moved { Size::default() } else { check_source(&plan)? };
    link::check_writable(config_file, &plan)?;
    let server =
        RunningServer::find(&config, arguments.socket.as_deref(), &[&plan.from, &plan.to])?;
    let guards = if server.is_none() { Some(guard(&config, &plan)?) } else { None };
    let work = Work {
        config_file,
        arguments,
        config,
        plan,
        server,
        _guards: guards,
        closed: Cell::new(0),
    };
    if !arguments.even_if_open && !is_aside && !is_moved {
        work.refuse_open()?;
    }
    if arguments.dry_run {
        return work.tell_plan(size, staging.is_some());
    }
    let way = if is_moved {
        // Its lock is taken again below.
        drop(staging);
        None
    } else {
        Some(work.carry_out(staging, state, is_aside)?)
    };
    work.end()?;
    work.tell_done(way, size)
}

/// True if the folder is not at its old place, where an empty one may tell who sees the link.
fn is_away(plan: &Plan) -> Result<bool, Failure> {
    let place = plan.source.above.find(OsStr::new(&plan.source.name))?;
    let Some(place) = place else { return Ok(true) };
    Ok(plan.from.hide_unreadable && place.names()?.is_empty())
}

fn shown(plan: &Plan) -> String {
    format!(r"{}\{}", plan.link.namespace, plan.link.link)
}

/// Looks at the folder that is to move, and at the place where it goes.
fn check_source(plan: &Plan) -> Result<Size, Failure> {
    let path = plan.source.path();
    let Some(folder) = plan.source.above.find(OsStr::new(&plan.source.name))? else {
        let other = staging::other_target(plan)?;
        let hint = other.map_or_else(String::new, |target| {
            format!("; a split of it to {target} was interrupted: make that call again")
        });
        let text = format!("there is no folder {}{hint}", path.display());
        return Err(Failure::new(Exit::NotFound, text));
    };
    if mount_of(&folder)? != mount_of(&plan.source.above)? {
        let text = format!(
            "{} is a file system of its own; share it, and make a link to the share: frevo namespace \
             add",
            path.display()
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    if let Some(own) = folder.names()?.iter().find(|name| plan.destination.ignores(name)) {
        let text = format!(
            "{} cannot move with the folder: a share has files of its own under this name; rename or \
             remove it first",
            folder.at(own).display()
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    plan.destination.check_empty()?;
    Size::of(&folder)
}

/// Makes sure that no server has the folders while this program changes them.
fn guard(config: &Config, plan: &Plan) -> Result<ShareGuards, Failure> {
    let guards = ShareGuards::of(config);
    for share in [&plan.from, &plan.to] {
        let name = share.name.get_ref();
        if share.cluster {
            let text = format!(
                "no server of this configuration runs here, and the share {name} may be served by \
                 another node of its cluster; run the command on that node"
            );
            return Err(Failure::new(Exit::Connect, text));
        }
        let folder = configured::folder::open(share)
            .map_err(|fault| Failure::new(Exit::Failed, fault.to_string()))?;
        guards.take(share, &*folder).map_err(|_| {
            let text = format!(
                "a server has the folder of the share {name}, and was not found by its admin socket; \
                 name the socket with --socket, or stop the server first"
            );
            Failure::new(Exit::Connect, text)
        })?;
    }
    Ok(guards)
}

impl Work<'_> {
    fn reload(&self) -> Done {
        self.server.as_ref().map_or(Ok(()), RunningServer::reload)
    }

    /// Files in the folder that clients have open.
    fn opened(&self) -> Result<Vec<OpenFile>, Failure> {
        let Some(server) = &self.server else { return Ok(Vec::new()) };
        Ok(opened::in_folder(&self.config, server.opens()?, &self.plan.source.path()))
    }

    fn refuse_open(&self) -> Done {
        let files = self.opened()?;
        if files.is_empty() { Ok(()) } else { Err(opened::refusal(&files)) }
    }

    /// Closes the files that clients have open, or refuses. True if some were closed.
    fn close_open(&self) -> Result<bool, Failure> {
        let Some(server) = &self.server else { return Ok(false) };
        let before = self.closed.get();
        if self.arguments.even_if_open {
            for _ in 0..ROUNDS {
                let files = self.opened()?;
                if files.is_empty() {
                    break;
                }
                for file in &files {
                    server.close(file)?;
                }
                self.closed.set(self.closed.get() + files.len());
            }
        }
        self.refuse_open()?;
        Ok(self.closed.get() > before)
    }

    /// Closes what clients have opened since the folder is aside. The server must have the shares still.
    fn close_late(&self) -> Result<bool, Failure> {
        if let Some(server) = &self.server {
            server.check_serves(&[&self.plan.from, &self.plan.to])?;
        }
        self.close_open()
    }

    /// Moves the folder. What a call before this one has done is not done again.
    fn carry_out(
        &self,
        staging: Option<Staging>,
        state: LinkState,
        is_aside: bool,
    ) -> Result<Way, Failure> {
        let staging = match staging {
            Some(staging) => {
                staging.check_owners(self.owner())?;
                staging
            }
            None => Staging::make(&self.plan, self.owner())?,
        };
        tell(format_args!(
            "moving {} to {}; if this is interrupted, make the same call again",
            self.plan.source.path().display(),
            self.plan.destination.path().display()
        ));
        match state {
            LinkState::Absent => {
                let added = link::add(self.config_file, &self.plan, &self.arguments.comment);
                if let Err(why) = added {
                    return Err(if is_aside { why } else { self.undo(staging, why, false) });
                }
            }
            LinkState::Online => link::set_offline(self.config_file, &self.plan)?,
            LinkState::Offline => {}
        }
        stop_at("link");
        if let Err(why) = self.reload() {
            // A server that takes long may read the link all the same.
            return Err(if is_aside { why } else { self.undo(staging, why, true) });
        }
        stop_at("reloaded");
        if let Err(why) = self.prepare(&staging, is_aside) {
            return Err(self.stopped(staging, why));
        }
        match move_files::move_all(&self.plan, &staging, &|| self.close_late()) {
            Ok(way) => Ok(way),
            Err(why) => Err(self.stopped(staging, why)),
        }
    }

    /// Takes the folder from its clients.
    fn prepare(&self, staging: &Staging, is_aside: bool) -> Done {
        if !is_aside {
            self.close_open()?;
            staging.set_aside(&self.plan)?;
        }
        if self.plan.from.hide_unreadable {
            self.leave_place(staging)?;
        }
        // A request that was under way at the reload may have opened a file.
        self.close_open().map(drop)
    }

    /// Leaves an empty folder with the rights of the one that moves: they decide who sees the link.
    fn leave_place(&self, staging: &Staging) -> Done {
        let (source, tree) = (&self.plan.source, staging.tree()?);
        let name = OsStr::new(&source.name);
        let is_there = source.above.has(name)?;
        let place = source.above.make(name)?;
        // One of an earlier call, and nobody else's.
        let (owner, _) = place.owner()?;
        let is_own = owner == rustix::process::geteuid().as_raw() || owner == tree.owner()?.0;
        if is_there && !(is_own && place.names()?.is_empty()) {
            let text = format!(
                "somebody has made the folder {} meanwhile; rename or remove it first",
                place.path.display()
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        let Some(to) = streams::side_of(&source.root)? else { return Ok(()) };
        let ends = Pair { from: tree.fd(), to: place.fd(), path: &tree.path };
        contents::copy_properties(&Sides { from: None, to }, &ends)
    }

    /// The user that the server runs as, as far as that is known.
    fn owner(&self) -> Option<(u32, u32)> {
        use std::os::unix::fs::MetadataExt as _;
        let state = || std::fs::metadata(crate::state::dir_of(&self.config)).ok();
        let of_state = || state().map(|state| (state.uid(), state.gid()));
        self.server.as_ref().and_then(RunningServer::owner).or_else(of_state)
    }

    /// Leaves all as it was before the call, and returns why.
    fn undo(&self, staging: Staging, why: Failure, is_reloaded: bool) -> Failure {
        let undone = staging
            .put_back(&self.plan)
            .and_then(|()| link::remove(self.config_file, &self.plan))
            .and_then(|()| staging.end());
        match undone {
            Ok(()) => {
                let reloaded = if is_reloaded { self.reload() } else { Ok(()) };
                let Err(failure) = reloaded else { return why };
                let text =
                    format!("{why}; reload the server, which may have the link still: {failure}");
                Failure::new(why.exit, text)
            }
            Err(failure) => {
                let text = format!("{why}; this could not be undone: {failure}");
                Failure::new(why.exit, text)
            }
        }
    }

    /// The failure of a move. It is undone as long as nothing has reached the new place; otherwise a second
    /// call goes on.
    fn stopped(&self, staging: Staging, why: Failure) -> Failure {
        if staging.may_return().unwrap_or(false) {
            return self.undo(staging, why, true);
        }
        let link = shown(&self.plan);
        let text =
            format!("{why}; the link {link} stays offline: make the same call again to go on");
        Failure::new(why.exit, text)
    }

    /// Lets clients use the link, and removes what is left.
    fn end(&self) -> Done {
        link::set_online(self.config_file, &self.plan)?;
        stop_at("online");
        if let Err(failure) = self.reload() {
            let link = shown(&self.plan);
            tell(format_args!("{failure}; the link {link} is of use after a reload"));
        }
        Staging::find(&self.plan)?.map_or(Ok(()), Staging::end)
    }

    fn tell_plan(&self, size: Size, is_begun: bool) -> Done {
        let plan = &self.plan;
        let (from, to) = (plan.source.path(), plan.destination.path());
        if is_json() {
            let object = json!({
                "dry_run": true, "link": shown(plan), "target": plan.target.unc(),
                "from": from.display().to_string(), "to": to.display().to_string(),
                "files": size.files, "bytes": size.bytes, "begun": is_begun,
                "server": self.server.is_some(),
            });
            return print_text(&format!("{object}\n"));
        }
        let files = counted(size.files, "file");
        let goes_on = if is_begun { " (begun by an earlier call)" } else { "" };
        let (from, to, target) = (from.display(), to.display(), plan.target.unc());
        print_text(&format!(
            "{files} with {} bytes would move from {from} to {to}{goes_on}; {} would lead to {target}\n",
            size.bytes,
            shown(plan)
        ))
    }

    fn tell_done(&self, way: Option<Way>, size: Size) -> Done {
        let plan = &self.plan;
        let way = match way {
            Some(Way::Renamed) => "renamed",
            Some(Way::Copied) => "copied",
            None => "before",
        };
        if self.server.is_none() {
            tell("no server runs with this configuration; the next one has the link");
        }
        if plan.from.cluster {
            tell(format_args!(
                "give the other nodes of the cluster the same link: frevo namespace add {} {} {}",
                plan.link.namespace,
                plan.link.link.replace('\\', "/"),
                plan.target.unc().replace('\\', "/")
            ));
        }
        if is_json() {
            let object = json!({
                "link": shown(plan), "target": plan.target.unc(), "moved": way,
                "files": size.files, "bytes": size.bytes, "closed": self.closed.get(),
                "reloaded": self.server.is_some(),
            });
            return print_text(&format!("{object}\n"));
        }
        let closed = match self.closed.get() {
            0 => String::new(),
            count => format!("; {} closed", counted(count, "open file")),
        };
        print_text(&format!("{} leads to {}{closed}\n", shown(plan), plan.target.unc()))
    }
}
