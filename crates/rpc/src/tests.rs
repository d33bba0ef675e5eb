//! Both ends of a pipe against each other, golden bytes, and lies.

mod endpoint;
mod golden;
mod lsarpc;
mod questions;
mod samr;
mod services;

use super::srvsvc::{
    ConnectionInfo, FileInfo, ServerInfo, ServerLimits, ServerType, SessionInfo, ShareInfo,
    ShareSettings, ShareType,
};
use super::{
    Account, Client, Domain, Endpoint, Pipe, Question, Services, SidNameUse, SyntaxId, WinError,
};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use frevo_wire::Status;
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::ndr::{NdrReader, NdrWriter};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()
}

/// The stub data with all referent identifiers alike: they only have to differ.
fn without_referents(stub: &[u8]) -> Vec<u8> {
    let word = |word: &[u8]| match word {
        [low, 0, 2, 0] if low % 4 == 0 => [0xAA; 4].to_vec(),
        other => other.to_vec(),
    };
    stub.chunks(4).flat_map(word).collect()
}

/// A server with shares, for one caller.
struct Fixture {
    shares: Vec<ShareInfo>,
    is_administrator: bool,
    /// True if only administrators may list accounts.
    hides_accounts: bool,
    /// True if the caller is an administrator.
    manages: bool,
}

impl Services for Fixture {
    fn may_manage(&self) -> bool {
        self.manages
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        let of = |client: &str, user: &str| SessionInfo {
            client: client.to_string(),
            user: user.to_string(),
            ..SessionInfo::default()
        };
        vec![of(r"\\192.0.2.1", "ann"), of(r"\\192.0.2.2", "bob")]
    }

    fn files(&self) -> Vec<FileInfo> {
        let path = r"data\a".to_string();
        vec![FileInfo { id: 7, permissions: 3, locks: 1, path, user: "ann".to_string() }]
    }

    fn connections(&self) -> Vec<ConnectionInfo> {
        let share = "data".to_string();
        vec![ConnectionInfo { id: 1, share, ..ConnectionInfo::default() }]
    }

    fn close_file(&self, id: u32) -> Result<(), WinError> {
        if id == 7 { Ok(()) } else { Err(WinError::FILE_ID_NOT_FOUND) }
    }

    fn end_sessions(&self, client: Option<&str>, user: Option<&str>) -> Result<(), WinError> {
        let is_known = client == Some(r"\\192.0.2.1") && user.is_none();
        if is_known { Ok(()) } else { Err(WinError::CLIENT_NAME_NOT_FOUND) }
    }

    fn add_share(&self, share: &ShareInfo) -> Result<(), WinError> {
        match &*share.name {
            "data" => Err(WinError::DUPLICATE_SHARE),
            _ => Ok(()),
        }
    }

    fn set_share(&self, name: &str, settings: &ShareSettings) -> Result<(), WinError> {
        match (name, &settings.remark, settings.max_uses) {
            ("data", Some(_), None) | ("data", None, Some(5)) => Ok(()),
            ("data", Some(_), Some(_)) => Ok(()),
            ("data", None, None) if settings.security_descriptor.is_some() => Ok(()),
            _ => Err(WinError::NET_NAME_NOT_FOUND),
        }
    }

    fn remove_share(&self, name: &str) -> Result<(), WinError> {
        if name == "data" { Ok(()) } else { Err(WinError::NET_NAME_NOT_FOUND) }
    }

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
            limits: ServerLimits {
                opens: 65_536,
                users: 64,
                tree_connects: 1_024,
                requests: 8_192,
                break_seconds: 35,
            },
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

    fn random(&self) -> [u8; 16] {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        u128::from(NEXT.fetch_add(1, Ordering::Relaxed)).to_be_bytes()
    }

    fn machine(&self) -> Domain {
        Domain { name: "REFERENCE".to_string(), sid: Some(machine()) }
    }

    fn caller(&self) -> Option<Account> {
        self.find_name("smbuser")
    }

    fn find_sid(&self, sid: &Sid) -> Option<Account> {
        accounts().into_iter().find(|account| account.sid == *sid)
    }

    fn find_name(&self, name: &str) -> Option<Account> {
        let name = name.strip_prefix("REFERENCE\\").unwrap_or(name);
        let is = |account: &Account| match account.kind {
            SidNameUse::DOMAIN => account.domain == name,
            _ => account.name == name,
        };
        accounts().into_iter().find(is)
    }

    fn may_list_accounts(&self) -> bool {
        self.is_administrator || !self.hides_accounts
    }

    fn users_list_accounts(&self) -> bool {
        !self.hides_accounts
    }

    fn accounts_in(&self, domain: &Sid) -> Vec<Account> {
        let is_in =
            |of: &Account| of.kind != SidNameUse::DOMAIN && of.in_domain().sid == Some(*domain);
        accounts().into_iter().filter(is_in).collect()
    }

    /// All users are in None, root is an administrator.
    fn members(&self, group: &Sid) -> Vec<Sid> {
        let users = accounts().into_iter().filter(|of| of.kind == SidNameUse::USER);
        let is_in = |of: &Account| *group != Sid::ADMINISTRATORS || of.name == "root";
        users.filter(is_in).map(|of| of.sid).collect()
    }

    fn memberships(&self, sids: &[Sid]) -> Vec<Sid> {
        let root = self.members(&Sid::ADMINISTRATORS);
        if sids.iter().any(|sid| root.contains(sid)) { vec![Sid::ADMINISTRATORS] } else { vec![] }
    }

    fn is_enabled(&self, user: &Sid) -> bool {
        *user != machine().with_rid(1002).unwrap()
    }

    fn security(&self, pipe: Pipe) -> Option<alloc::boxed::Box<dyn crate::PipeSecurity>> {
        (pipe == Pipe::Samr).then(|| alloc::boxed::Box::new(questions::Toy) as _)
    }
}

fn machine() -> Sid {
    "S-1-5-21-3073959387-254659926-2653779275".parse().unwrap()
}

/// Those of the smbd that the golden bytes are from.
fn accounts() -> Vec<Account> {
    let account = |sid: Sid, domain: &str, name: &str, kind| Account {
        sid,
        domain: domain.to_string(),
        name: name.to_string(),
        kind,
    };
    let user =
        |rid, name| account(machine().with_rid(rid).unwrap(), "REFERENCE", name, SidNameUse::USER);
    vec![
        account(machine(), "REFERENCE", "", SidNameUse::DOMAIN),
        user(1000, "root"),
        user(1002, "smbuser2"),
        user(1001, "smbuser"),
        account(machine().with_rid(513).unwrap(), "REFERENCE", "None", SidNameUse::GROUP),
        account(Sid::EVERYONE, "", "Everyone", SidNameUse::WELL_KNOWN_GROUP),
        account(Sid::ADMINISTRATORS, "BUILTIN", "Administrators", SidNameUse::ALIAS),
    ]
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
    Fixture { shares, is_administrator: true, hides_accounts: false, manages: false }
}

/// A client bound to a pipe.
fn bound(pipe: Pipe, services: &dyn Services) -> (Client, Endpoint) {
    let mut client = Client::new(pipe.interface());
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
    if let Some(Question::Change(_)) = endpoint.question() {
        endpoint.answer_change(Status::ACCESS_DENIED);
    }
    loop {
        let read = endpoint.read(piece).expect("an answer that is whole");
        if let Some(answer) = client.handle_bytes(&read.data)? {
            assert_eq!((read.remaining, endpoint.unread()), (0, 0));
            return Ok(answer);
        }
    }
}

/// Tests the answer of Samba about an unknown name.
#[test]
fn a_sid_of_zeros_is_none() {
    let mut w = NdrWriter::new();
    w.u32(0).u32(0).u32(0).sid(&Sid::EVERYONE);
    let stub = w.into_stub();
    let mut r = NdrReader::new(&stub);
    assert_eq!(r.sid_or_none("none"), Ok(None));
    assert_eq!(r.sid_or_none("one"), Ok(Some(Sid::EVERYONE)));
    assert!(r.sid_or_none("more").is_err());
    assert!(NdrReader::new(&[0; 11]).sid_or_none("cut").is_err());
}
