//! A responder of our own, for machines without Avahi.

use std::io;
use std::time::Duration;

use mdns_sd::{IfKind, IfPredicate, ServiceDaemon, ServiceInfo};

use super::on_link;
use super::services::{Service, services};
use crate::announcement::Announcement;
use crate::interfaces::interfaces;

/// The port of multicast DNS.
pub(super) const PORT: u16 = 5353;

/// Time for the goodbye of a service.
const GOODBYE: Duration = Duration::from_millis(500);

/// Longest wait for the responder's thread.
const START: Duration = Duration::from_secs(5);

/// A running responder.
pub(crate) struct Responder {
    daemon: ServiceDaemon,
    /// Full names of the registered services.
    names: Vec<String>,
}

impl Responder {
    /// Registers the services of a server.
    pub(super) fn start(announcement: &Announcement) -> io::Result<Self> {
        let daemon = ServiceDaemon::new().map_err(as_io)?;
        await_start(&daemon);
        if let Err(why) = on_link::confine(PORT) {
            tracing::warn!(%why, "answers over mDNS may leave the local network: strangers \
                may have them sent to others; block UDP port 5353 from outside");
        }
        daemon.disable_interface(IfKind::All).map_err(as_io)?;
        let wanted = announcement.clone();
        let is_wanted = IfPredicate::new(move |one| {
            interfaces(&wanted)
                .iter()
                .any(|ours| ours.name == one.name && ours.address.is_ipv4() == one.ip().is_ipv4())
        });
        daemon.enable_interface(IfKind::Predicate(is_wanted)).map_err(as_io)?;
        let mut responder = Self { daemon, names: Vec::new() };
        for service in services(announcement) {
            responder.register(announcement, &service)?;
        }
        Ok(responder)
    }

    fn register(&mut self, announcement: &Announcement, service: &Service) -> io::Result<()> {
        let host = format!("{}.local.", announcement.name.to_lowercase());
        let name = &announcement.name;
        let kind = format!("{}.local.", service.kind);
        let info = ServiceInfo::new(&kind, name, &host, "", service.port, service.text.as_slice())
            .map_err(as_io)?
            .enable_addr_auto();
        let full = info.get_fullname().to_owned();
        self.daemon.register(info).map_err(as_io)?;
        self.names.push(full);
        Ok(())
    }

    /// Says goodbye for all services and ends.
    pub(super) async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            for name in &self.names {
                if let Ok(done) = self.daemon.unregister(name) {
                    let _ = done.recv_timeout(GOODBYE);
                }
            }
            if let Ok(done) = self.daemon.shutdown() {
                let _ = done.recv_timeout(GOODBYE);
            }
        });
        // The process is about to end, so an error of the shutdown does not matter.
        let _ = stopped.await;
    }
}

/// Waits until the thread of a responder has opened its sockets and answers.
pub(super) fn await_start(daemon: &ServiceDaemon) {
    if let Ok(status) = daemon.status() {
        let _ = status.recv_timeout(START);
    }
}

/// For [`Result::map_err`]: an error of mDNS as one of I/O.
#[allow(clippy::needless_pass_by_value, reason = "map_err gives it by value")]
fn as_io(error: mdns_sd::Error) -> io::Error {
    io::Error::other(error.to_string())
}
