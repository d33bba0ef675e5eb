//! The announcement of the server on the local network, by a process of its own.
//!
//! The process reads messages of strangers, so it is nobody, sees no file, and shares nothing with
//! the server but a pipe: each line of it is an announcement that replaces the one before, and its
//! end is the end of the server.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

use frevo_config::{DiscoveryChoice, LogFormat};
use frevo_discovery::{Announced, Announcement};
use frevo_wire::dtyp::Guid;
use tokio::sync::mpsc;

use super::confine::helpers;
use super::plan::Plan;
use crate::accounts::host_name;
use crate::arguments::Announce;
use crate::configured;
use crate::exit::{Done, Failure};
use crate::logging::Logging;

/// The process that announces the server, if there is one.
pub(super) struct Discovery {
    addresses: Vec<SocketAddr>,
    guid: Guid,
    model: String,
    pipe: Option<ChildStdin>,
}

impl Discovery {
    /// Starts the process, unless the server is not announced or listens only to this machine.
    /// Before the server is confined: then it can start none.
    pub(super) fn start(plan: &Plan, addresses: &[SocketAddr], guid: Guid) -> Self {
        let model = configured::settings(&plan.config, host_name().as_str(), guid).model;
        let mut this = Self { addresses: addresses.to_vec(), guid, model, pipe: None };
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if is_local || plan.config.server.discovery == Some(DiscoveryChoice::Off) {
            return this;
        }
        match spawn(plan) {
            Ok(pipe) => this.pipe = Some(pipe),
            Err(error) => {
                tracing::warn!(target: "frevo::discovery", %error, "the server is not announced on the network");
            }
        }
        this.tell(plan);
        this
    }

    /// Announces the server as `plan` says.
    pub(super) fn tell(&mut self, plan: &Plan) {
        let announcement = self.announcement(plan);
        let Some(pipe) = &mut self.pipe else { return };
        let told = serde_json::to_string(&announcement)
            .map_err(std::io::Error::other)
            .and_then(|line| writeln!(pipe, "{line}"));
        if let Err(error) = told {
            tracing::warn!(target: "frevo::discovery", %error, "the server is not announced on the network any more");
            self.pipe = None;
        }
    }

    fn announcement(&self, plan: &Plan) -> Announcement {
        let server = &plan.config.server;
        let host = host_name();
        let name = server.name.as_ref().unwrap_or(&host).as_str().to_owned();
        let is_off = server.discovery == Some(DiscoveryChoice::Off);
        let addresses = self.addresses.iter().map(SocketAddr::ip);
        let time_machine = plan.config.shares.iter().filter(|share| share.time_machine);
        Announcement {
            name,
            workgroup: server.workgroup.clone().unwrap_or_else(|| String::from("WORKGROUP")),
            comment: server.comment.clone().unwrap_or_default(),
            id: self.guid.0,
            port: self.addresses.first().map_or(super::listen::SMB_PORT, SocketAddr::port),
            addresses: if is_off { Vec::new() } else { addresses.collect() },
            interfaces: server.discovery_interfaces.clone(),
            time_machine: time_machine.map(|share| share.name.get_ref().to_string()).collect(),
            model: server.model.clone().unwrap_or_else(|| self.model.clone()),
        }
    }
}

/// Starts this program again as the process that announces.
fn spawn(plan: &Plan) -> std::io::Result<ChildStdin> {
    let server = &plan.config.server;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-discovery").arg("announce");
    if let Some(log) = server.log {
        command.args(["--log", log.as_str()]);
    }
    if let Some(level) = &server.log_level {
        command.args(["--log-level", level]);
    }
    // In a process group of its own the process gets no Ctrl-C; it ends when the server closes the
    // pipe.
    command.process_group(0).env_clear().stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or_else(|| std::io::Error::other("no pipe"))
}

/// The process that announces: until standard input ends.
pub(crate) fn run(announce: &Announce) -> Done {
    // The confinement begins before the process has other threads and before it reads a message
    // from the network. The thread's name only helps in process lists.
    let _ = rustix::thread::set_name(c"frevo-discovery");
    let lacks = helpers::confine_discovery();
    let format = announce.log.unwrap_or(LogFormat::Text);
    Logging::start(format, announce.log_level.as_deref())?;
    for why in lacks {
        tracing::warn!(target: "frevo::discovery", %why, "the process that announces the server keeps a right");
    }
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(announcement) = serde_json::from_str(&line) else { continue };
            if sender.blocking_send(announcement).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    runtime.block_on(follow(receiver));
    runtime.shutdown_background();
    Ok(())
}

/// Announces each announcement that comes, in place of the one before.
async fn follow(mut receiver: mpsc::Receiver<Announcement>) {
    let mut current: Option<(Announcement, Announced)> = None;
    while let Some(next) = receiver.recv().await {
        if let Some((before, announced)) = current.take() {
            if before == next {
                current = Some((before, announced));
                continue;
            }
            announced.stop().await;
        }
        let announced = Announced::start(&next).await;
        current = Some((next, announced));
    }
    if let Some((_, announced)) = current {
        announced.stop().await;
    }
}
