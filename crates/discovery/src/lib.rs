//! Announces an SMB server on the local network, so that the file managers of other machines list
//! it: multicast DNS for macOS and Linux (`_smb._tcp`, `_adisk._tcp` for Time Machine,
//! `_device-info._tcp`), and WS-Discovery for Windows, whose Explorer lists computers under
//! "Network" that answer as MS-PBSD and DPWS say.
//!
//! Everything here reads messages of strangers. It belongs into a process that has no right to
//! files and holds no secrets. Only neighbours are answered: hosts on the network of an interface
//! that the server listens on. Answers are limited in number and bytes for each second
//! ([`limits`]), so that nobody can use them to flood a victim.
#![forbid(unsafe_code)]

mod announcement;
pub mod dbus;
#[doc(hidden)]
pub mod fuzz_api;
mod interfaces;
pub mod limits;
mod mdns;
mod wsd;

pub use announcement::{Announcement, METADATA_PORT};
pub use interfaces::{Interface, interfaces};

/// The announcements that run until this is dropped.
pub struct Announced {
    mdns: Option<mdns::Responder>,
    wsd: Option<wsd::Responder>,
}

/// The port of SMB; Windows opens no other one from its network view.
const SMB_PORT: u16 = 445;

impl Announced {
    /// Announces the server. What cannot be started is logged, and the rest runs.
    pub async fn start(announcement: &Announcement) -> Self {
        let found = interfaces(announcement);
        for name in &announcement.interfaces {
            if !found.iter().any(|one| one.name == *name) {
                tracing::warn!(interface = %name, "the server is not announced on this interface: \
                    it does not exist, or the server does not listen there");
            }
        }
        // If the server listens on no address, there is nothing to announce. A missing interface
        // may appear later, so it does not end the announcement.
        if announcement.addresses.is_empty() {
            return Self { mdns: None, wsd: None };
        }
        let mdns = mdns::Responder::start(announcement)
            .await
            .inspect_err(|why| tracing::warn!(%why, "the server is not announced over mDNS"));
        let wsd = if announcement.port == SMB_PORT {
            let started = wsd::Responder::start(announcement.clone()).await;
            let failed = "the server is not announced over WS-Discovery (Windows)";
            started.inspect_err(|why| tracing::warn!(%why, "{failed}")).ok()
        } else {
            let port = announcement.port;
            tracing::info!(port, "Windows finds servers at port 445 only");
            None
        };
        Self { mdns: mdns.ok(), wsd }
    }

    /// Says goodbye and ends.
    pub async fn stop(self) {
        if let Some(wsd) = self.wsd {
            wsd.stop().await;
        }
        if let Some(mdns) = self.mdns {
            mdns.stop().await;
        }
    }
}

impl std::fmt::Debug for Announced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mdns, wsd) = (self.mdns.is_some(), self.wsd.is_some());
        f.debug_struct("Announced").field("mdns", &mdns).field("wsd", &wsd).finish()
    }
}
