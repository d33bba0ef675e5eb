//! The process that makes snapshots: `frevo snapshot-hands`.
//!
//! A server that is confined may not make snapshots. This process starts earlier and does that in its place
//! (`frevo_snapshot_hands`). It is told at its start of which folders.

use std::io::Read as _;
use std::os::fd::AsFd as _;

use frevo_config::LogFormat;
use frevo_snapshot_hands::{Process, SetUp, limits};

use super::confine::helpers;
use crate::arguments::Announce;
use crate::exit::{Done, Exit, Failure};
use crate::logging::Logging;

/// The process: until its server ends. Standard input has the set-up, standard output is the socket.
pub(crate) fn run(arguments: &Announce) -> Done {
    // The confinement begins before the process has other threads and before it reads a request. The
    // thread's name only helps in process lists.
    let _ = rustix::thread::set_name(c"frevo-snapshots");
    frevo_posix::inherited::close_all();
    let failed = || Failure::failed("cannot start the process that makes snapshots");
    let mut text = String::new();
    std::io::stdin().take(limits::SET_UP_BYTES).read_to_string(&mut text).map_err(failed())?;
    let Some(set_up) = SetUp::from_text(&text) else {
        return Err(Failure::new(
            Exit::Usage,
            "`frevo snapshot-hands` is started by `frevo serve`",
        ));
    };
    let socket = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed())?;
    let process = Process::open(&set_up, socket);
    let lacks = helpers::confine_snapshot_hands(&set_up);
    let format = arguments.log.unwrap_or(LogFormat::Text);
    Logging::start(format, arguments.log_level.as_deref())?;
    for why in lacks {
        tracing::warn!(target: "frevo::snapshot", %why, "the process that makes snapshots is only partly confined");
    }
    process.serve().map_err(failed())
}
