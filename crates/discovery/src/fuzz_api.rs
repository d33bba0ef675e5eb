//! Entry points for the fuzz targets of `dev/fuzz`; not part of the public API.

use crate::announcement::Announcement;
use crate::interfaces::Interface;
use crate::wsd::{answer_to_datagram, answer_to_request};

/// A responder whose neighbour is the host 192.0.2.20.
fn announcement() -> Announcement {
    Announcement {
        name: String::from("NAS"),
        workgroup: String::from("WORKGROUP"),
        comment: String::from("<&\">"),
        id: [0x11; 16],
        port: 445,
        addresses: Vec::new(),
        interfaces: Vec::new(),
        time_machine: Vec::new(),
        model: String::from("RackMac"),
    }
}

fn interface() -> Interface {
    let address = std::net::Ipv4Addr::new(192, 0, 2, 10).into();
    Interface { name: String::from("eth0"), index: 2, address, prefix: 24 }
}

/// Returns the answer of WS-Discovery to a datagram of a neighbour.
pub fn wsd_datagram(message: &[u8]) -> Option<String> {
    answer_to_datagram(announcement(), interface(), message)
}

/// Reads a request for metadata over HTTP; returns the answer's body.
pub async fn wsd_request(stream: &[u8]) -> Option<String> {
    answer_to_request(announcement(), stream).await
}
