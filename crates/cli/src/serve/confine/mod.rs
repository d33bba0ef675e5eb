//! Confinement: rights that a server of files does not need are given up before the
//! first byte of a client is read, so that a fault in Frevo is not a fault of the host.
//!
//! Landlock and seccomp hold for one thread and those that it starts. So all is given up
//! on the first thread, before it starts others: after the sockets are open, and before
//! accounts are read. What serving takes and the confinement forbids is opened before, or belongs to
//! a process of its own, which is started before ([`helpers`]).

pub(crate) mod helpers;
mod landlock;
mod needs;
mod privileges;
mod seccomp;
mod syscalls;
pub(crate) mod trial;

use std::path::{Path, PathBuf};

use frevo_admin::UnservedShare;
use frevo_config::{ConfinementChoice, ShareSection};
use frevo_posix::name_service::Confine;

use tokio::net::UnixStream;

use crate::arguments::Serve;
use crate::exit::{Done, Exit, Failure};

use self::needs::Needs;
use super::plan::Plan;

/// The rights that the process has kept.
#[derive(Debug)]
pub(super) struct Confined {
    choice: ConfinementChoice,
    /// The needs at start; none where the process may do all that its user may.
    kept: Option<Needs>,
    /// Files outside `kept` are out of reach.
    to_folders: bool,
    /// Parts of the confinement that hold.
    holds: Vec<&'static str>,
    /// Parts that do not, and why.
    lacks: Vec<String>,
    /// The stream that tells of calls that were not refused before.
    refused: Option<std::os::unix::net::UnixStream>,
}

/// The part that Landlock does.
const FILES: &str = "files (Landlock)";
const CALLS: &str = "system calls (seccomp)";
const PRIVILEGES: &str = "privileges";
const MEMORY: &str = "memory";

fn choice_of(plan: &Plan) -> ConfinementChoice {
    plan.config.server.confinement.unwrap_or(ConfinementChoice::On)
}

/// Starts the process that asks the name service for a server that is confined.
pub(super) fn start_name_service(plan: &Plan) -> Done {
    if choice_of(plan) == ConfinementChoice::Off {
        return Ok(());
    }
    let failure = Failure::failed("cannot start the process that asks the name service");
    let (keeper, asker) = (helpers::confine_names_keeper, helpers::confine_names);
    frevo_posix::name_service::start(Confine { keeper, asker }).map_err(failure)
}

/// Opens what a confined server cannot: the kernel's files about mounts and memory, rings, and the socket that
/// tells of interfaces.
fn open_before(plan: &Plan) {
    frevo_posix::keep_mount_list();
    frevo_net::buffer::keep_resident_file();
    let cores = plan.config.server.cores.filter(|count| *count > 0);
    frevo_net::file_io::prepare_rings(cores.unwrap_or_else(frevo_net::cores::usual_count));
    if let Err(error) = frevo_net::socket::keep_routes_socket() {
        tracing::warn!(target: "frevo::server", %error,
            "clients are not told the addresses of this host's other interfaces");
    }
}

impl Confined {
    /// Confines this thread and those that it starts.
    pub(super) fn begin(plan: &Plan, arguments: &Serve) -> Result<Self, Failure> {
        let choice = choice_of(plan);
        let mut confined = Self {
            choice,
            kept: None,
            to_folders: false,
            holds: Vec::new(),
            lacks: Vec::new(),
            refused: None,
        };
        if choice == ConfinementChoice::Off {
            return Ok(confined);
        }
        let needs = Needs::of(plan, arguments);
        open_before(plan);
        confined.note(MEMORY, privileges::close_memory());
        let to_folders = landlock::confine(&needs);
        confined.to_folders = to_folders.is_ok();
        confined.note(FILES, to_folders);
        confined.note(PRIVILEGES, privileges::drop_capabilities(&needs));
        let calls = confined.confine_calls(&needs);
        confined.note(CALLS, calls);
        confined.kept = Some(needs);
        confined.judge()?;
        Ok(confined)
    }

    /// Last: the filter refuses what the other parts call.
    fn confine_calls(&mut self, needs: &Needs) -> Result<(), String> {
        let handled = frevo_posix::refused_calls::handle();
        let bell = handled.map_err(|error| format!("system calls: {error}"))?;
        seccomp::confine(needs)?;
        self.refused = Some(bell);
        Ok(())
    }

    fn note(&mut self, part: &'static str, done: Result<(), String>) {
        match done {
            Ok(()) => self.holds.push(part),
            Err(why) => self.lacks.push(why),
        }
    }

    /// Refuses to go on without what is required.
    fn judge(&self) -> Done {
        if self.choice == ConfinementChoice::Required && !self.lacks.is_empty() {
            let why = self.lacks.join("; ");
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "confinement = \"required\", but this host cannot confine the server fully: \
                     {why}; with \"on\" Frevo starts with what the host supports"
                ),
            ));
        }
        Ok(())
    }

    /// Tells of system calls that were refused, once each, for as long as the server runs.
    pub(super) fn tell_refused(&self) -> impl Future<Output = ()> + use<> {
        let bell = self.refused.as_ref().and_then(|bell| bell.try_clone().ok());
        async move {
            let Some(bell) = bell.and_then(|bell| UnixStream::from_std(bell).ok()) else { return };
            while bell.readable().await.is_ok() {
                // Each refused call writes one byte to the stream. One read takes up to 64 of them,
                // because their number does not matter.
                if matches!(bell.try_read(&mut [0; 64]), Ok(0)) {
                    return;
                }
                for call in frevo_posix::refused_calls::take() {
                    tracing::warn!(target: "frevo::server", call,
                        "refused a system call that frevo is not known to need; please report its \
                         number (ausyscall shows the name); confinement = \"off\" allows all calls");
                }
            }
        }
    }

    /// Logs what does not hold, and what a reload will not be able to do.
    pub(super) fn warn(&self) {
        if !self.lacks.is_empty() {
            tracing::warn!(target: "frevo::server",
                "the server is only partly confined: {}", self.lacks.join("; "));
        }
        let kept = self.kept.iter().filter(|_| self.to_folders);
        for file in kept.flat_map(|needs| &needs.read_once) {
            tracing::info!(target: "frevo::server", file = %file.display(),
                "a reload reads this file again only if it was changed in place; \
                 keep it in a folder of its own, such as /etc/frevo");
        }
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        match self.kept {
            None => String::from("not confined (confinement = \"off\")"),
            Some(_) => told(&self.holds, &self.lacks),
        }
    }

    /// Leaves out shares that need what was given up at the start, tells why, and returns them.
    pub(super) fn leave_out(&self, shares: &mut Vec<ShareSection>) -> Vec<UnservedShare> {
        let mut left_out = Vec::new();
        shares.retain(|share| match self.given_up(share) {
            None => true,
            Some(why) => {
                let name = share.name.get_ref();
                tracing::error!(target: "frevo::server", share = %name,
                    "the share is not served: {why}; restart frevo to serve it");
                let reason = format!("{why}; restart frevo to serve it");
                left_out.push(UnservedShare { share: name.to_string(), reason });
                false
            }
        });
        left_out
    }

    /// The right that a share needs and that was given up at the start.
    fn given_up(&self, share: &ShareSection) -> Option<String> {
        let kept = self.kept.as_ref()?;
        let needs = Needs::of_share(share);
        if let Some(folder) = self.out_of_reach(&needs) {
            return Some(format!(
                "{} is outside the folders that frevo was confined to when it started",
                folder.display()
            ));
        }
        if needs.acts_as_users && !kept.acts_as_users {
            let key = match (&share.force_user, &share.guest) {
                (Some(_), _) => "force_user",
                (None, Some(_)) => "guest",
                (None, None) => "run_as = \"user\"",
            };
            return Some(format!("{key} needs privileges that frevo gave up when it started"));
        }
        if needs.sets_privileged_attributes && !kept.sets_privileged_attributes {
            return Some(String::from(
                "nt_acls = \"xattr\" needs a privilege that frevo gave up when it started",
            ));
        }
        None
    }

    /// Fails where a configuration names files that cannot be read any more.
    pub(super) fn check_files(&self, plan: &Plan, arguments: &Serve) -> Done {
        let mut needs = Needs::of(plan, arguments);
        // The folders of shares are not checked here, because a share whose folder is out of reach
        // is simply not served.
        needs.written.clear();
        needs.read.retain(|path| {
            !plan.config.shares.iter().any(|share| Needs::of_share(share).read.contains(path))
        });
        let Some(path) = self.out_of_reach(&needs) else { return Ok(()) };
        Err(Failure::new(
            Exit::Config,
            format!(
                "{} is outside the folders that frevo was confined to when it started; restart \
                 frevo to use it",
                path.display()
            ),
        ))
    }

    /// A path of `needs` that cannot be reached.
    fn out_of_reach<'a>(&self, needs: &'a Needs) -> Option<&'a Path> {
        let kept = self.kept.as_ref().filter(|_| self.to_folders)?;
        let within = |folders: &[PathBuf], path: &Path| {
            folders.iter().any(|folder| path.starts_with(folder))
        };
        let written = needs.written.iter().filter(|path| !within(&kept.written, path));
        let read = needs
            .read
            .iter()
            .filter(|path| !within(&kept.written, path) && !within(&kept.read, path));
        written.chain(read).map(PathBuf::as_path).next()
    }
}

/// A line that says what would hold, for a server that starts here now.
pub(crate) fn outlook(choice: Option<ConfinementChoice>) -> String {
    if choice == Some(ConfinementChoice::Off) {
        return String::from("not confined (confinement = \"off\")");
    }
    let (mut holds, mut lacks) = (vec![MEMORY], Vec::new());
    match landlock::probe() {
        Ok(()) => holds.push(FILES),
        Err(why) => lacks.push(why),
    }
    holds.push(PRIVILEGES);
    match seccomp::probe() {
        Ok(()) => holds.push(CALLS),
        Err(why) => lacks.push(why),
    }
    told(&holds, &lacks)
}

fn told(holds: &[&str], lacks: &[String]) -> String {
    let mut line = format!("confined: {}", holds.join(", "));
    if !lacks.is_empty() {
        line.push_str(&format!("; not confined: {}", lacks.join("; ")));
    }
    line
}
