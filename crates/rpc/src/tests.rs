//! Both ends of a pipe against each other, golden bytes, and lies.

mod authentication;
mod endpoint;
mod epm;
mod fsrvp;
mod golden;
mod lsarpc;
mod mdssvc;
mod netdfs;
mod protected_client;
mod registrations;
mod samr;
mod services;
mod witness;

use super::srvsvc::{
    ConnectionInfo, FileInfo, ServerInfo, ServerLimits, ServerType, SessionInfo, ShareInfo,
    ShareSettings, ShareType,
};
use super::{
    Account, Call, Calls, Client, Directory, Domain, Endpoint, Interface, Outcome, PipeError,
    SidNameUse, SyntaxId, Terms, WinError,
};
use crate::{srvsvc, wkssvc};
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

impl Directory for Fixture {
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
}

impl srvsvc::ServerService for Fixture {
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

    fn shares(&self, _server: &str) -> Vec<ShareInfo> {
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
        // The fixture's clock shows 2024-02-29 13:37:42.56 UTC, a Thursday.
        FileTime::from_unix(1_709_213_862, 560_000_000)
    }

    fn uptime_ms(&self) -> u64 {
        0x1_0000_0005
    }
}

impl wkssvc::WorkstationService for Fixture {
    fn server(&self) -> ServerInfo {
        srvsvc::ServerService::server(self)
    }

    fn is_administrator(&self) -> bool {
        self.is_administrator
    }

    fn users(&self) -> Option<Vec<wkssvc::WkstaUser>> {
        let user = |name: &str| wkssvc::WkstaUser { name: name.to_string(), ..Default::default() };
        self.manages.then(|| vec![user("ann"), user("bob")])
    }
}

impl crate::lsarpc::Authority for Fixture {
    fn holders(&self) -> Vec<crate::lsarpc::Holder> {
        let holder = |sid, privileges| crate::lsarpc::Holder { sid, privileges };
        vec![holder(Sid::ADMINISTRATORS, &[8, 9][..]), holder(Sid::EVERYONE, &[23])]
    }

    fn administers(&self) -> bool {
        self.manages
    }

    fn primary_domain(&self) -> crate::PrimaryDomain {
        let (name, dns_name) = ("WORKGROUP".to_string(), alloc::string::String::new());
        crate::PrimaryDomain { name, dns_name, sid: None }
    }

    /// One user, by a name that no local account has.
    fn find_in_primary_domain(&self, name: &str) -> Option<Account> {
        let sid = Sid::new(5, &[21, 6, 6, 6, 1_105])?;
        let (domain, name) = ("A".to_string(), (name == "u1").then(|| name.to_string())?);
        Some(Account { sid, domain, name, kind: SidNameUse::USER })
    }
}

impl crate::samr::Sam for Fixture {
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
}

/// The server's end of a pipe, with the state of its interface.
struct End {
    endpoint: Endpoint,
    lsarpc: crate::lsarpc::Lsarpc,
    samr: crate::samr::Samr,
    /// Passwords to change, which nobody has answered.
    changes: Vec<(Call, crate::samr::PasswordChange)>,
    cancelled: Vec<u32>,
}

impl End {
    fn new(interface: &'static Interface, assoc_group_id: u32) -> Self {
        Self::on(Terms::of_pipe(interface, assoc_group_id))
    }

    fn on(terms: Terms) -> Self {
        Self {
            endpoint: Endpoint::new(terms),
            lsarpc: crate::lsarpc::Lsarpc::default(),
            samr: crate::samr::Samr::default(),
            changes: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    /// Writes all of `bytes`, for an end that judges no token.
    fn write(&mut self, bytes: &[u8], services: &Fixture) -> Result<(), PipeError> {
        self.write_some(bytes, services).map(|rest| assert_eq!(rest, []))
    }

    fn write_some<'a>(
        &mut self,
        bytes: &'a [u8],
        services: &Fixture,
    ) -> Result<&'a [u8], PipeError> {
        let Self { endpoint, lsarpc, samr, changes, cancelled } = self;
        endpoint.write(bytes, &mut Server { services, lsarpc, samr, changes, cancelled })
    }
}

impl core::ops::Deref for End {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl core::ops::DerefMut for End {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }
}

/// The interfaces behind an end.
struct Server<'a> {
    services: &'a Fixture,
    lsarpc: &'a mut crate::lsarpc::Lsarpc,
    samr: &'a mut crate::samr::Samr,
    changes: &'a mut Vec<(Call, crate::samr::PasswordChange)>,
    cancelled: &'a mut Vec<u32>,
}

impl Calls for Server<'_> {
    fn begin(&mut self, call: &Call) -> Outcome {
        let (opnum, stub) = (call.opnum, &*call.stub);
        match call.interface.syntax {
            SyntaxId::SRVSVC => srvsvc::call(opnum, stub, self.services).into(),
            SyntaxId::WKSSVC => wkssvc::call(opnum, stub, self.services).into(),
            SyntaxId::LSARPC => self.lsarpc.call(opnum, stub, self.services).into(),
            SyntaxId::DSSP => {
                let domain = || crate::lsarpc::Authority::primary_domain(self.services);
                crate::dssp::call(opnum, stub, domain).into()
            }
            _ if crate::samr::PasswordChange::is_opnum(opnum) => {
                match crate::samr::PasswordChange::parse(opnum, stub) {
                    Err(malformed) => Outcome::Ended(Err(malformed.into())),
                    Ok(change) => {
                        self.changes.push((call.clone(), change));
                        Outcome::Pending
                    }
                }
            }
            _ => self.samr.call(opnum, stub, self.services).into(),
        }
    }

    fn cancel(&mut self, call_id: u32) {
        self.cancelled.push(call_id);
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
fn bound(interface: &'static Interface, services: &Fixture) -> (Client, End) {
    let mut client = Client::new(interface.syntax);
    let mut endpoint = End::new(interface, 0x1234);
    endpoint.write(&client.bind(), services).unwrap();
    let reply = endpoint.read(usize::MAX).unwrap();
    assert_eq!(client.handle_bind_reply(&reply.data), Ok(true));
    (client, endpoint)
}

/// Makes a call and reads the answer in pieces of `piece` bytes.
fn call(
    (client, endpoint): &mut (Client, End),
    opnum: u16,
    stub: &[u8],
    services: &Fixture,
    piece: usize,
) -> Result<Vec<u8>, super::client::RpcError> {
    for fragment in client.call(opnum, stub) {
        endpoint.write(&fragment, services).unwrap();
    }
    for (call, _) in core::mem::take(&mut endpoint.changes) {
        endpoint.complete(call.id, Ok(Status::ACCESS_DENIED.0.to_le_bytes().to_vec()));
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
