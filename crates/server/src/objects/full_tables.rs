//! Tables of sessions and Opens at n - 1, n and n + 1 of their limits.

use std::sync::Arc;
use std::time::Duration;

use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::file_id::FileId;
use parking_lot::Mutex;

use crate::Server;
use crate::base::limits::{
    DISCONNECTED_OPENS, DISCONNECTED_OPENS_PER_OWNER, DURABLE_OPENS, OPENS_PER_SESSION, SESSIONS,
};
use crate::objects::durable::{Asked, Durables, Survival};
use crate::objects::ledger::{Holder, Ledger};
use crate::objects::open::{Open, OpenTarget};
use crate::objects::pipe::testing::pipe;
use crate::objects::session::Session;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::{Share, Target};

fn session(id: u64, holder: Arc<Holder>) -> Session {
    Session::new(id, Guid([1; 16]), Dialect::SMB_3_1_1, None, holder)
}

/// Makes Opens, which a test needs by the thousand: those of pipes take no descriptor.
struct Maker {
    ledger: Ledger,
    tree: Arc<TreeConnect>,
    last: u64,
}

impl Maker {
    fn new() -> Self {
        let share = Arc::new(Share::new("IPC$", Target::Pipes));
        let tree = Arc::new(TreeConnect::new(1, share, AccessMask::FILE_ALL));
        Self { ledger: Ledger::default(), tree, last: 0 }
    }

    fn open(&mut self) -> Arc<Open> {
        self.last += 1;
        let file_id = FileId { persistent: self.last, volatile: self.last };
        let target = OpenTarget::Pipe(Mutex::new(pipe(&self.ledger.account("ann"))));
        let access = AccessMask::FILE_ALL;
        Arc::new(Open::new(file_id, Arc::clone(&self.tree), access, 0, target))
    }

    /// An Open of `owner` that waits for its client when it has lost its session.
    fn resilient(&mut self, durables: &Arc<Durables>, owner: &str) -> Arc<Open> {
        let open = self.open();
        let asked = Asked {
            file_name: String::new(),
            desired_access: AccessMask::FILE_ALL,
            share_access: ShareAccess::EMPTY,
            create_options: CreateOptions::EMPTY,
        };
        let survival =
            || Survival::new(owner, Guid([1; 16]), None, None, asked, CreateAction::OPENED);
        open.survival_or(durables, survival).set_resilient(Duration::from_secs(60));
        open
    }
}

#[test]
fn so_many_sessions_have_a_place() {
    let server = Server::builder().build().unwrap();
    let state = server.state();
    let network = state.ledger.account("ann");
    let mut last = None;
    for number in 1..=SESSIONS {
        let added = state.add_session(|id| session(id, Arc::clone(&network)));
        last = Some(added.unwrap_or_else(|status| panic!("{status:?} to session {number}")));
    }
    let refused = state.add_session(|id| session(id, Arc::clone(&network)));
    assert_eq!(refused.map(|session| session.id), Err(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(state.session_count(), SESSIONS);
    state.close_session(&last.unwrap(), "a test");
    assert!(state.add_session(|id| session(id, network)).is_ok());
}

#[test]
fn so_many_opens_are_in_a_session() {
    let mut maker = Maker::new();
    let session = session(1, maker.ledger.account("ann"));
    for number in 1..OPENS_PER_SESSION {
        session.attach_open(&maker.open()).unwrap_or_else(|s| panic!("{s:?} to {number}"));
    }
    let last = maker.open();
    session.attach_open(&last).unwrap();
    let kept = maker.open();
    assert_eq!(session.attach_open(&kept), Err(Status::INSUFFICIENT_RESOURCES));
    assert!(!kept.is_closed(), "it waits for its client as before");
    session.take_open(&last).unwrap();
    session.attach_open(&kept).unwrap();
    assert_eq!(session.attach_open(&last), Err(Status::INSUFFICIENT_RESOURCES));
}

#[test]
fn so_many_opens_are_durable() {
    let (mut maker, durables) = (Maker::new(), Arc::<Durables>::default());
    let opens: Vec<_> = (0..=DURABLE_OPENS).map(|_| maker.resilient(&durables, "ann")).collect();
    let (beyond, taken) = opens.split_last().unwrap();
    for (number, open) in taken.iter().enumerate() {
        assert_eq!(durables.add(open, 1), Ok(()), "{number}");
    }
    assert_eq!(durables.add(beyond, 1), Err(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(durables.counts(), (DURABLE_OPENS, 0));
    durables.forget(&taken[0]);
    assert_eq!(durables.add(beyond, 1), Ok(()));
}

/// Those beyond are closed with their connection; the others' wait is not shortened.
#[test]
fn so_many_opens_wait_for_their_clients() {
    let (mut maker, durables) = (Maker::new(), Arc::<Durables>::default());
    let mut disconnect = |owner: &str| {
        let open = maker.resilient(&durables, owner);
        durables.add(&open, 1).unwrap();
        let is_kept = durables.disconnect(&open);
        if !is_kept {
            durables.forget(&open);
        }
        (open, is_kept)
    };
    let mut last = None;
    for owner in 0..DISCONNECTED_OPENS / DISCONNECTED_OPENS_PER_OWNER {
        let owner = format!("user{owner}");
        for number in 0..DISCONNECTED_OPENS_PER_OWNER {
            let (open, is_kept) = disconnect(&owner);
            assert!(is_kept, "{owner}: {number}");
            last = Some(open);
        }
        assert!(!disconnect(&owner).1, "{owner} has no more, in whatever case it is written");
        assert!(!disconnect(&owner.to_uppercase()).1);
    }
    assert_eq!(durables.counts(), (DISCONNECTED_OPENS, DISCONNECTED_OPENS));
    assert!(!disconnect("another").1, "all together have no more");
    durables.forget(&last.unwrap());
    assert!(disconnect("another").1);
    assert!(!disconnect("another").1);
}
