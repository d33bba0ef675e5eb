//! Both ends of a pipe against each other, golden bytes, and lies.

mod endpoint;
mod golden;
mod services;

use super::srvsvc::{ServerInfo, ServerType, ShareInfo, ShareType};
use super::{Client, Endpoint, Pipe, Services, SyntaxId};
use crate::dtyp::FileTime;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// A server with shares, seen by someone.
struct Fixture {
    shares: Vec<ShareInfo>,
    is_administrator: bool,
}

impl Services for Fixture {
    fn shares(&self) -> Vec<ShareInfo> {
        self.shares.clone()
    }

    fn server(&self) -> ServerInfo {
        ServerInfo {
            name: "FREVO".to_string(),
            domain: "WORKGROUP".to_string(),
            comment: "files".to_string(),
            version_major: 10,
            version_minor: 0,
            kind: ServerType::WORKSTATION | ServerType::SERVER | ServerType::NT,
            max_users: 100,
            idle_disconnect_minutes: 15,
            logged_on_users: 3,
        }
    }

    fn is_administrator(&self) -> bool {
        self.is_administrator
    }

    fn now(&self) -> FileTime {
        // 2024-02-29 13:37:42.56 UTC, a Thursday.
        FileTime::from_unix(1_709_213_862, 560_000_000)
    }

    fn uptime_ms(&self) -> u64 {
        0x1_0000_0005
    }
}

fn share(name: &str, kind: ShareType, remark: &str) -> ShareInfo {
    ShareInfo {
        name: name.to_string(),
        kind,
        remark: remark.to_string(),
        path: alloc::format!("C:\\{name}"),
        flags: 0x30,
        ..ShareInfo::default()
    }
}

fn fixture() -> Fixture {
    let shares = vec![
        share("data", ShareType::DISKTREE, "größe"),
        share("IPC$", ShareType::IPC | ShareType::SPECIAL, "IPC Service"),
    ];
    Fixture { shares, is_administrator: true }
}

/// A client bound to a pipe.
fn bound(pipe: Pipe, services: &dyn Services) -> (Client, Endpoint) {
    let interface = if pipe == Pipe::Srvsvc { SyntaxId::SRVSVC } else { SyntaxId::WKSSVC };
    let mut client = Client::new(interface);
    let mut endpoint = Endpoint::new(pipe, 0x1234);
    endpoint.write(&client.bind(), services).unwrap();
    let reply = endpoint.read(usize::MAX).unwrap();
    assert_eq!(client.handle_bind_reply(&reply.data), Ok(true));
    (client, endpoint)
}

/// Makes a call and reads the answer in pieces of `piece` bytes.
fn call(
    (client, endpoint): &mut (Client, Endpoint),
    opnum: u16,
    stub: &[u8],
    services: &dyn Services,
    piece: usize,
) -> Result<Vec<u8>, super::client::RpcError> {
    for fragment in client.call(opnum, stub) {
        endpoint.write(&fragment, services).unwrap();
    }
    loop {
        let read = endpoint.read(piece).expect("an answer that is whole");
        if let Some(answer) = client.handle_bytes(&read.data)? {
            assert_eq!((read.remaining, endpoint.unread()), (0, 0));
            return Ok(answer);
        }
    }
}
