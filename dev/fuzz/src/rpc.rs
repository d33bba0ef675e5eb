//! Pipes: what a client writes, and what it reads of the answers.

use frevo_rpc::server::{Endpoint, Pipe, Services};
use frevo_rpc::srvsvc::{ServerInfo, ServerLimits, ServerType, ShareInfo};
use frevo_rpc::{Account, Domain, SidNameUse};
use frevo_wire::dtyp::{FileTime, Sid};

use crate::chunk;

struct Office;

impl Services for Office {
    fn shares(&self) -> Vec<ShareInfo> {
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

    fn may_list_accounts(&self) -> bool {
        true
    }

    fn users_list_accounts(&self) -> bool {
        true
    }

    fn find_name(&self, name: &str) -> Option<Account> {
        (name.len() % 2 == 0).then(|| self.find_sid(&Sid::EVERYONE)).flatten()
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

/// Writes, each after its length, with reads between.
pub fn rpc_endpoint(data: &[u8]) {
    let Some((kind, mut data)) = data.split_first() else { return };
    let pipe = match (kind & 8, kind & 1) {
        (0, 0) => Pipe::Srvsvc,
        (0, _) => Pipe::Wkssvc,
        (_, 0) => Pipe::Lsarpc,
        _ => Pipe::Samr,
    };
    let mut endpoint = Endpoint::new(pipe, 7);
    // All at once, or in pieces.
    if kind & 2 != 0 {
        let _ = endpoint.write(data, &Office);
    } else {
        while let Some(bytes) = chunk(&mut data) {
            if endpoint.write(bytes, &Office).is_err() {
                break;
            }
            if kind & 4 != 0 {
                let _ = endpoint.read(bytes.len());
            }
        }
    }
    let unread = endpoint.unread();
    let mut read = 0;
    while let Some(part) = endpoint.read(4096) {
        assert!(part.data.len() <= 4096);
        read += part.data.len();
    }
    assert_eq!(read, unread, "what was announced is there");
}
