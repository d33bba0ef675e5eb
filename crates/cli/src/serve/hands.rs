//! The process with rights of a cluster's node: `frevo hands`.
//!
//! The server is confined before it serves anybody: it connects to nobody, and can neither have storage
//! refuse another node nor set an address. This process starts earlier and does that in its place
//! (`frevo_fences::hands`). It is told at its start all that it can be asked for.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::time::Duration;

use frevo_config::LogFormat;
use frevo_fences::hands::{Process, SetUp};
use rustix::time::{ClockId, clock_gettime};

use super::confine::helpers;
use crate::arguments::Announce;
use crate::exit::{Done, Exit, Failure};
use crate::logging::Logging;

/// The longest set-up, bytes: that of a cluster with as many shares as the limit allows.
const SET_UP_BYTES: u64 = 64 << 20;

/// The process: until its server ends. Standard input has the set-up, standard output is the socket.
pub(crate) fn run(arguments: &Announce) -> Done {
    // The confinement begins before the process has other threads and before it reads a request. The
    // thread's name only helps in process lists.
    let _ = rustix::thread::set_name(c"frevo-hands");
    frevo_posix::inherited::close_all();
    let failed = || Failure::failed("cannot start the process with rights");
    let mut text = String::new();
    std::io::stdin().take(SET_UP_BYTES).read_to_string(&mut text).map_err(failed())?;
    let Some(set_up) = SetUp::from_text(&text) else {
        return Err(Failure::new(Exit::Usage, "`frevo hands` is started by `frevo serve`"));
    };
    let socket = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed())?;
    // The server gets the fault too, and tells it.
    let Ok(process) = Process::open(set_up.clone(), socket, since_boot) else {
        return Err(Failure::new(Exit::Failed, "cannot start the process with rights"));
    };
    let lacks = helpers::confine_hands(&set_up);
    let format = arguments.log.unwrap_or(LogFormat::Text);
    Logging::start(format, arguments.log_level.as_deref())?;
    for why in lacks {
        tracing::warn!(target: "frevo::cluster", %why, "the process with rights is only partly confined");
    }
    for why in process.warnings() {
        tracing::warn!(target: "frevo::cluster", "{why}");
    }
    let mut last = None;
    process.serve(|fault| {
        if last.as_ref() != Some(&fault) {
            tracing::error!(target: "frevo::cluster", %fault, "an address of the cluster");
            last = Some(fault);
        }
    });
    Ok(())
}

/// CLOCK_BOOTTIME, which goes on while a machine is suspended.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
