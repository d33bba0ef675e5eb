//! The content of the announcements.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The port at which WS-Discovery's metadata is asked for, over TCP.
pub const METADATA_PORT: u16 = 5357;

/// A server that is announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The name of the server, which is the first label of its host name: `nas`.
    pub name: String,
    /// The workgroup that Windows shows it in.
    pub workgroup: String,
    /// A text for people.
    pub comment: String,
    /// An identifier of the server that stays the same over restarts.
    pub id: [u8; 16],
    /// The port of SMB.
    pub port: u16,
    /// The addresses that the server listens on. An unspecified one stands for all of its family.
    pub addresses: Vec<IpAddr>,
    /// The interfaces to announce on; all that the server listens on when empty.
    pub interfaces: Vec<String>,
    /// Names of shares for Time Machine.
    pub time_machine: Vec<String>,
    /// The model of Apple's whose icon macOS shows.
    pub model: String,
}

/// An announcement for tests.
#[cfg(test)]
pub(crate) fn example() -> Announcement {
    Announcement {
        name: String::from("NAS"),
        workgroup: String::from("WORKGROUP"),
        comment: String::from("Ann's & Bob's"),
        id: [0x11; 16],
        port: 445,
        addresses: vec!["::".parse().unwrap()],
        interfaces: Vec::new(),
        time_machine: Vec::new(),
        model: String::from("RackMac"),
    }
}
