//! Registers services with Avahi over D-Bus.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use super::services::{Service, services};
use crate::announcement::Announcement;
use crate::dbus::{Body, Bus};
use crate::interfaces::interfaces;
use crate::limits::INTERFACE_CHECK;

const AVAHI: &str = "org.freedesktop.Avahi";
const GROUP: &str = "org.freedesktop.Avahi.EntryGroup";
/// All interfaces, or both families.
const ANY: i32 = -1;

/// Services that Avahi announces until this is dropped.
pub(crate) struct Registered {
    /// Closed by the drop, which ends the thread and with it the connection to the bus.
    _end: Sender<()>,
}

impl Registered {
    /// Registers the services.
    ///
    /// # Errors
    /// Avahi does not run, or refuses them.
    pub(super) fn new(announcement: Announcement) -> io::Result<Self> {
        let mut session = Session::new(&announcement)?;
        let (end, ended) = channel::<()>();
        std::thread::spawn(move || {
            // If Avahi was restarted, or the interfaces have changed, the services are registered
            // again.
            while ended.recv_timeout(INTERFACE_CHECK) == Err(RecvTimeoutError::Timeout) {
                if !session.is_current(&announcement)
                    && let Ok(new) = Session::new(&announcement)
                {
                    session = new;
                }
            }
        });
        Ok(Self { _end: end })
    }
}

/// A connection to the bus with the services that were registered over it.
struct Session {
    bus: Bus,
    /// The name of the process that is Avahi.
    owner: String,
    interfaces: Vec<i32>,
}

impl Session {
    fn new(announcement: &Announcement) -> io::Result<Self> {
        let mut bus = Bus::system()?;
        let owner = bus.owner(AVAHI)?;
        let server = "org.freedesktop.Avahi.Server";
        let group = bus.call(AVAHI, "/", server, "EntryGroupNew", &Body::default())?;
        let interfaces = chosen(announcement);
        for service in services(announcement) {
            for index in &interfaces {
                let body = entry(&announcement.name, &service, *index);
                bus.call(AVAHI, &group, GROUP, "AddService", &body)?;
            }
        }
        bus.call(AVAHI, &group, GROUP, "Commit", &Body::default())?;
        Ok(Self { bus, owner, interfaces })
    }

    /// True while Avahi announces what it should.
    fn is_current(&mut self, announcement: &Announcement) -> bool {
        self.bus.owner(AVAHI).is_ok_and(|owner| owner == self.owner)
            && chosen(announcement) == self.interfaces
    }
}

/// The interfaces to announce on: all that Avahi knows, where the server listens everywhere.
fn chosen(announcement: &Announcement) -> Vec<i32> {
    let everywhere = announcement.addresses.iter().any(std::net::IpAddr::is_unspecified);
    if everywhere && announcement.interfaces.is_empty() {
        return vec![ANY];
    }
    let found = interfaces(announcement);
    let mut indexes: Vec<i32> =
        found.iter().filter_map(|one| i32::try_from(one.index).ok()).collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

/// The arguments of AddService: `iiussssqaay`.
fn entry(name: &str, service: &Service, interface: i32) -> Body {
    let text = service.text.iter().map(|(name, value)| format!("{name}={value}").into_bytes());
    let mut body = Body::default();
    body.int32(interface).int32(ANY).uint32(0);
    // Avahi replaces an empty domain and an empty host name by its own.
    body.string(name).string(service.kind).string("").string("");
    body.uint16(service.port).byte_arrays(&text.collect::<Vec<_>>());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_written_as_avahi_reads_it() {
        let text = vec![(String::from("a"), String::from("b"))];
        let service = Service { kind: "_smb._tcp", port: 445, text };
        assert_eq!(entry("NAS", &service, ANY).signature(), "iiussssqaay");
        let mut announcement = crate::announcement::example();
        assert_eq!(chosen(&announcement), [ANY]);
        announcement.addresses = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(chosen(&announcement), [0; 0], "no interface has it");
    }
}
