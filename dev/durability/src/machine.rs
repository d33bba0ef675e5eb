//! The machine that fails: the server's process, or a guest as a whole.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::guest::Guest;
use crate::random::Random;
use crate::server::Server;

pub(crate) const USER: &str = "ann";
pub(crate) const PASSWORD: &str = "Passw0rd";

/// Continuously available shares: one with the files of persistent handles, one for names. Then a
/// share where only a FLUSH or FILE_WRITE_THROUGH makes anything stable.
pub(crate) const SHARES: [(&str, bool); 3] = [(KEPT, true), (CONTINUOUS, true), (PLAIN, false)];
pub(crate) const KEPT: &str = "kept";
pub(crate) const CONTINUOUS: &str = "continuous";
pub(crate) const PLAIN: &str = "plain";

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) host: &'static str,
    pub(crate) port: u16,
}

/// A server that fails and comes back.
#[derive(Debug)]
pub(crate) enum Machine {
    /// A process that is killed. The kernel keeps what it wrote.
    Process(Server),
    /// A guest kernel whose power is cut. Its disk keeps what was flushed.
    Guest(Box<Guest>),
}

impl Machine {
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Process(server) => server.address(),
            Self::Guest(_) => Guest::ADDRESS,
        }
    }

    /// Returns the files of the share [`KEPT`].
    pub(crate) fn files(&self) -> PathBuf {
        match self {
            Self::Process(server) => server.folder(KEPT),
            Self::Guest(guest) => guest.files(),
        }
    }

    /// True if [`Self::files`] are those that the server serves. Otherwise they are the copy that
    /// was made when the machine came back last.
    pub(crate) const fn shows_the_present(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Starts it and waits until the server is ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        match self {
            Self::Process(server) => server.start(),
            Self::Guest(guest) => guest.start(),
        }
    }

    /// Makes it fail; returns a description.
    pub(crate) fn fail(&mut self, random: &mut Random) -> Result<String> {
        match self {
            Self::Process(server) => server.kill().map(|()| "killed".into()),
            Self::Guest(guest) => guest.cut(random),
        }
    }
}

/// Returns the server's configuration with shares below `disk`.
pub(crate) fn configuration(listen: &str, disk: &Path) -> String {
    let state = disk.join("state");
    let mut text =
        format!("[server]\nname = \"KEPT\"\nlisten = [{listen:?}]\nstate_dir = {state:?}\n");
    for (name, continuous) in SHARES {
        let path = disk.join(name);
        text +=
            &format!("\n[[share]]\nname = {name:?}\npath = {path:?}\ncontinuous = {continuous}\n");
    }
    text
}
