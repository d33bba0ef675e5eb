//! Pipes: what a client writes, and what it reads of the answers.

use frevo_rpc::epm::{self, Address, Epm, Mapper, Registration, Tower};
use frevo_rpc::lsarpc::{Authority, Holder, Lsarpc};
use frevo_rpc::netdfs::{self, Change, DfsInfo, EntryPath, NamespaceService, Storage, StorageState};
use frevo_rpc::samr::{PasswordChange, Sam, Samr};
use frevo_rpc::srvsvc::{ServerInfo, ServerLimits, ServerService, ServerType, ShareInfo};
use frevo_rpc::wkssvc::{WkstaUser, WorkstationService};
use frevo_rpc::{
    Account, Call, Calls, Directory, Domain, Endpoint, Outcome, PrimaryDomain, SidNameUse, SyntaxId,
    Terms, Verdict, WinError, dssp, lsarpc, samr, srvsvc, wkssvc,
};
use frevo_wire::dtyp::{FileTime, Sid};

use crate::chunk;

struct Office;

impl Directory for Office {
    /// A constant, so that every run has the same handle: a pipe of this target has one.
    fn random(&self) -> [u8; 16] {
        [7; 16]
    }

    fn machine(&self) -> Domain {
        Domain { name: "FREVO".into(), sid: Some(Sid::BUILTIN) }
    }

    fn caller(&self) -> Option<Account> {
        self.find_sid(&Sid::EVERYONE)
    }

    fn find_sid(&self, sid: &Sid) -> Option<Account> {
        let (domain, name, kind) = match *sid {
            Sid::EVERYONE => ("", "Everyone", SidNameUse::WELL_KNOWN_GROUP),
            Sid::BUILTIN => ("FREVO", "", SidNameUse::DOMAIN),
            _ => return None,
        };
        Some(Account { sid: *sid, domain: domain.into(), name: name.into(), kind })
    }

    fn find_name(&self, name: &str) -> Option<Account> {
        (name.len() % 2 == 0).then(|| self.find_sid(&Sid::EVERYONE)).flatten()
    }
}

impl ServerService for Office {
    fn shares(&self, _server: &str) -> Vec<ShareInfo> {
        let share = |name: &str| ShareInfo { name: name.into(), ..ShareInfo::default() };
        vec![share("data"), share("IPC$"), share("a longer name than the others")]
    }

    fn server(&self) -> ServerInfo {
        ServerInfo {
            name: "FREVO".into(),
            domain: "WORKGROUP".into(),
            comment: String::new(),
            version_major: 6,
            version_minor: 1,
            kind: ServerType::SERVER,
            max_users: u32::MAX,
            idle_disconnect_minutes: 15,
            logged_on_users: 1,
            limits: ServerLimits::default(),
        }
    }

    fn is_administrator(&self) -> bool {
        true
    }

    fn now(&self) -> FileTime {
        FileTime(1 << 57)
    }

    fn uptime_ms(&self) -> u64 {
        1 << 40
    }
}

impl WorkstationService for Office {
    fn server(&self) -> ServerInfo {
        ServerService::server(self)
    }

    fn is_administrator(&self) -> bool {
        true
    }

    fn users(&self) -> Option<Vec<WkstaUser>> {
        let user = |name: &str| WkstaUser { name: name.into(), ..WkstaUser::default() };
        Some(vec![user("ann"), user("a longer name than the others")])
    }
}

impl Authority for Office {
    fn primary_domain(&self) -> PrimaryDomain {
        PrimaryDomain { name: "A".into(), dns_name: "a.test".into(), sid: Some(Sid::BUILTIN) }
    }

    fn find_in_primary_domain(&self, name: &str) -> Option<Account> {
        self.find_name(name)
    }

    fn holders(&self) -> Vec<Holder> {
        vec![Holder { sid: Sid::ADMINISTRATORS, privileges: &[8, 9, 18, 28] }]
    }

    fn administers(&self) -> bool {
        true
    }
}

impl Sam for Office {
    fn may_list_accounts(&self) -> bool {
        true
    }

    fn users_list_accounts(&self) -> bool {
        true
    }

    fn accounts_in(&self, domain: &Sid) -> Vec<Account> {
        let account = |rid, name: &str, kind| {
            let sid = domain.with_rid(rid)?;
            Some(Account { sid, domain: "FREVO".into(), name: name.into(), kind })
        };
        let user = account(1_000, "ann", SidNameUse::USER);
        user.into_iter().chain(account(544, "Administrators", SidNameUse::ALIAS)).collect()
    }

    fn members(&self, group: &Sid) -> Vec<Sid> {
        vec![*group]
    }

    fn memberships(&self, sids: &[Sid]) -> Vec<Sid> {
        sids.to_vec()
    }

    fn is_enabled(&self, user: &Sid) -> bool {
        user.sub_authorities().len() % 2 == 0
    }
}

impl Mapper for Office {
    /// A constant, so that every run has the same handle: a pipe of this target has one.
    fn random(&self) -> [u8; 16] {
        [7; 16]
    }

    fn registrations(&self) -> Vec<Registration> {
        let pipe = Address::Pipe { path: r"\PIPE\samr".into(), host: r"\\FREVO".into() };
        let port = Address::Tcp { port: 49_152, host: [192, 0, 2, 1] };
        let of =
            |interface, address: &Address| Registration { interface, address: address.clone() };
        vec![
            of(&samr::INTERFACE, &pipe),
            of(&lsarpc::INTERFACE, &pipe),
            of(&samr::INTERFACE, &port),
        ]
    }
}

impl NamespaceService for Office {
    fn host(&self) -> String {
        "FREVO".into()
    }

    fn is_domain(&self, name: &str) -> bool {
        name == "a.test"
    }

    fn namespaces(&self) -> Vec<String> {
        vec!["files".into()]
    }

    fn entry(&self, path: &EntryPath) -> Option<DfsInfo> {
        (path.link.len() % 2 == 0).then(|| {
            let (server, share) = (String::from("a"), String::from("b"));
            let (state, priority) = (StorageState::ONLINE, netdfs::Priority::default());
            let storages = vec![Storage { state, server, share, priority }];
            DfsInfo { path: path.link.clone(), storage_count: 1, storages, ..DfsInfo::default() }
        })
    }

    fn entries(&self, _namespace: &str, from: usize, most: usize) -> Vec<DfsInfo> {
        vec![DfsInfo::default(); 3_usize.saturating_sub(from).min(most)]
    }

    fn may_manage(&self) -> bool {
        true
    }

    fn change(&self, change: &Change) -> Result<(), WinError> {
        assert!(!change.namespace().is_empty(), "{change:?}");
        Ok(())
    }
}

/// The interfaces of one association.
#[derive(Default)]
struct Interfaces {
    epm: Epm,
    lsarpc: Lsarpc,
    samr: Samr,
}

impl Calls for Interfaces {
    fn begin(&mut self, call: &Call) -> Outcome {
        let (opnum, stub) = (call.opnum, &*call.stub);
        match call.interface.syntax {
            SyntaxId::SRVSVC => srvsvc::call(opnum, stub, &Office).into(),
            SyntaxId::WKSSVC => wkssvc::call(opnum, stub, &Office).into(),
            SyntaxId::NETDFS => netdfs::call(opnum, stub, &Office).into(),
            SyntaxId::EPM => self.epm.call(opnum, stub, &Office).into(),
            SyntaxId::LSARPC => self.lsarpc.call(opnum, stub, &Office).into(),
            SyntaxId::DSSP => dssp::call(opnum, stub, || Office.primary_domain()).into(),
            _ if PasswordChange::is_opnum(opnum) => match PasswordChange::parse(opnum, stub) {
                Ok(_) => Outcome::Pending,
                Err(malformed) => Outcome::Ended(Err(malformed.into())),
            },
            _ => self.samr.call(opnum, stub, &Office).into(),
        }
    }

    fn cancel(&mut self, _: u32) {}
}

/// Writes bytes, and refuses each token that comes with them.
fn write(endpoint: &mut Endpoint, interfaces: &mut Interfaces, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    loop {
        match endpoint.write(rest, interfaces) {
            Err(_) => return false,
            Ok(left) => rest = left,
        }
        match endpoint.token() {
            Some(token) if token.token.len() % 2 == 0 => {
                endpoint.judge(Verdict::Continue(token.token));
            }
            Some(_) => endpoint.judge(Verdict::Refused),
            None => assert!(rest.is_empty(), "bytes are left without a token"),
        }
        if rest.is_empty() {
            return true;
        }
    }
}

/// Writes, each after its length, with reads between. The bytes are a tower, too: what is read of one
/// has the same meaning when it is written.
pub fn rpc_endpoint(data: &[u8]) {
    if let Ok(tower) = Tower::parse(data) {
        let again = Tower::parse(&tower.encode()).expect("a tower that was written");
        assert_eq!((again.interface, again.transfer), (tower.interface, tower.transfer));
    }
    let Some((kind, mut data)) = data.split_first() else { return };
    // Each call of this interface, without an association around it.
    if kind & 64 != 0
        && let Some((opnum, stub)) = data.split_first()
    {
        let _ = netdfs::call(u16::from(*opnum), stub, &Office);
        return;
    }
    let interface = match (kind & 8, kind & 1) {
        (0, 0) if kind & 128 != 0 => &netdfs::INTERFACE,
        (0, 0) => &srvsvc::INTERFACE,
        (0, _) => &wkssvc::INTERFACE,
        (_, 0) => &lsarpc::INTERFACE,
        _ => &samr::INTERFACE,
    };
    let terms = match kind & 48 {
        0 => Terms::of_pipe(interface, 7).and([&dssp::INTERFACE]),
        16 => Terms::of_pipe(&epm::INTERFACE, 7),
        32 => Terms::of_port(vec![&epm::INTERFACE], 135, 7),
        _ => Terms::of_port(vec![&epm::INTERFACE, &samr::INTERFACE, &lsarpc::INTERFACE], 49_152, 7),
    };
    let mut endpoint = Endpoint::new(terms);
    let mut interfaces = Interfaces::default();
    // One bit decides whether the input is written as a whole or in pieces.
    if kind & 2 != 0 {
        write(&mut endpoint, &mut interfaces, data);
    } else {
        while let Some(bytes) = chunk(&mut data) {
            if !write(&mut endpoint, &mut interfaces, bytes) {
                break;
            }
            if kind & 4 != 0 {
                let _ = endpoint.read(bytes.len());
            }
        }
    }
    for call_id in endpoint.pending().collect::<Vec<_>>() {
        endpoint.complete(call_id, Ok(vec![0; 4]));
    }
    let unread = endpoint.unread();
    let mut read = 0;
    while let Some(part) = endpoint.read(4096) {
        assert!(part.data.len() <= 4096);
        read += part.data.len();
    }
    assert_eq!(read, unread, "what was announced is there");
}
