//! Sessions: MS-SMB2 3.3.1.8. Shared by all channels of a client.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use frevo_crypto::{OpeningKey, SealingKey, SigningKey};
use frevo_proto::Dialect;
use frevo_store::order::model::step;
use frevo_store::order::{Ordered, OrderedRw, rank};
use frevo_store::{FileTable, OpenId};
use frevo_wire::Status;
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::fscc::eq_ignore_case;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use crate::access::identity::{Identity, SharedIdentity};
use crate::base::limits::{
    BRAKE_CLIENT_BYTES, CHANNELS_PER_SESSION, LOCKS_LIKE_AN_OPEN, OPENS_PER_SESSION,
    TREE_CONNECT_BYTES, TREES_PER_SESSION,
};
use crate::base::panics::Steps;
use crate::base::pools::slots::Slots;
use crate::base::under_way::UnderWay;
use crate::objects::client::ClientTable;
use crate::objects::farewell::{Farewell, Parting};
use crate::objects::lease::client::client_id;
use crate::objects::ledger::{Charge, Holder, Kind};
use crate::objects::notice::ConnectionHandle;
use crate::objects::offload::Offloads;
use crate::objects::open::{Deletion, Open};
use crate::objects::operations::Operations;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::Use;

/// Session.State, with the end that the specification expresses by removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Authentication has not ended.
    InProgress,
    /// The session is in use.
    Valid,
    /// Its credentials ran out; it may authenticate again.
    Expired,
    /// Logged off, taken over or lost. It never comes back.
    Closed,
}

/// Keys and policy, fixed when authentication first succeeds.
#[derive(Debug)]
pub struct Security {
    /// Session.SigningKey, also the first channel's.
    pub signing_key: Arc<SigningKey>,
    /// Session.EncryptionKey; shared by all channels, so that nonces are too.
    pub sealing_key: Option<Arc<SealingKey>>,
    /// Session.DecryptionKey
    pub opening_key: Option<Arc<OpeningKey>>,
    /// Session.SigningRequired
    pub signing_required: bool,
    /// Session.EncryptData
    pub encrypt_data: bool,
    /// Session.SupportsNotifications
    pub supports_notifications: bool,
    /// Session.IsGuest: the client knows no key, so nothing is signed or sealed.
    pub is_guest: bool,
}

/// A session, MS-SMB2 3.3.1.8.
#[derive(Debug)]
pub struct Session {
    /// Session.SessionId
    pub id: u64,
    /// ClientGuid of the connection that made it.
    pub client_guid: Guid,
    /// Dialect of the connection that made it.
    pub dialect: Dialect,
    /// Cipher of the connection that made it: all channels use one.
    pub cipher: Option<frevo_crypto::Cipher>,
    state: AtomicU8,
    /// Session.ExpirationTime, FILETIME ticks; the largest number for never.
    expires: AtomicU64,
    security: OnceLock<Security>,
    identity: SharedIdentity,
    /// The last identity before it became anonymous.
    former: ArcSwapOption<Identity>,
    /// The name of the account that logged on first. No other account may log on later.
    owner: OnceLock<String>,
    /// The client that its leases belong to.
    lease_client: OnceLock<Guid>,
    /// Charged until an account has logged on.
    network: Arc<Holder>,
    /// Charged from then on.
    account: OnceLock<Arc<Holder>>,
    trees: OrderedRw<HashMap<u32, Arc<TreeConnect>>, { rank::SESSION }>,
    next_tree: AtomicU32,
    opens: OrderedRw<HashMap<u64, Arc<Open>>, { rank::SESSION }>,
    channels: Ordered<Vec<(u64, ConnectionHandle)>, { rank::SESSION }>,
    /// Its charges, until it ends.
    charges: Mutex<Vec<Charge>>,
    /// Its place among the sessions of guests.
    guest: Mutex<Option<Use>>,
    /// It has asked for something since the last look.
    is_used: AtomicBool,
    /// The client has sealed a request.
    has_sealed: AtomicBool,
    /// The time of the last look at which the session was in use.
    used: Mutex<Instant>,
    /// Its operations; those of one that has ended are waited for by LOGOFF.
    pub under_way: Arc<UnderWay>,
    /// The places of its open pipes.
    pub pipes: Slots,
    /// Byte ranges that its Opens have locked.
    pub locks: Slots,
    /// Its waiting CHANGE_NOTIFY requests.
    pub notifies: Slots,
    /// Its numbered operations on names.
    pub operations: Operations,
    /// Its tokens of offloaded copies.
    pub offloads: Mutex<Offloads>,
}

impl Session {
    /// A session whose authentication begins.
    pub fn new(
        id: u64,
        client_guid: Guid,
        dialect: Dialect,
        cipher: Option<frevo_crypto::Cipher>,
        network: Arc<Holder>,
    ) -> Self {
        Self {
            id,
            client_guid,
            dialect,
            cipher,
            state: AtomicU8::new(State::InProgress as u8),
            expires: AtomicU64::new(u64::MAX),
            security: OnceLock::new(),
            identity: SharedIdentity::default(),
            former: ArcSwapOption::empty(),
            owner: OnceLock::new(),
            lease_client: OnceLock::new(),
            network,
            account: OnceLock::new(),
            trees: OrderedRw::default(),
            next_tree: AtomicU32::new(1),
            opens: OrderedRw::default(),
            channels: Ordered::default(),
            under_way: Arc::default(),
            pipes: Slots::default(),
            locks: Slots::default(),
            notifies: Slots::default(),
            operations: Operations::default(),
            offloads: Mutex::default(),
            charges: Mutex::default(),
            guest: Mutex::default(),
            is_used: AtomicBool::new(false),
            has_sealed: AtomicBool::new(false),
            used: Mutex::new(Instant::now()),
        }
    }

    /// Session.State
    pub fn state(&self) -> State {
        step();
        match self.state.load(Ordering::Acquire) {
            0 => State::InProgress,
            1 => State::Valid,
            2 => State::Expired,
            _ => State::Closed,
        }
    }

    /// Authentication succeeded for the first time. What the session keeps from now
    /// on is charged to `holder`.
    pub fn establish(&self, identity: Identity, security: Security, holder: Arc<Holder>) {
        let _ = self.account.set(holder);
        let _ = self.owner.set(identity.user.clone());
        self.identity.store(Some(Arc::new(identity)));
        let _ = self.security.set(security);
        self.change_state(State::Valid);
    }

    /// Authentication succeeded again (same user, keys kept: MS-SMB2 3.3.5.5.2).
    pub fn reestablish(&self, identity: Identity) {
        self.use_now();
        if let Some(before) = self.identity().filter(|one| identity.is_nobody() && !one.is_nobody())
        {
            self.former.store(Some(before));
        }
        self.identity.store(Some(Arc::new(identity)));
        self.change_state(State::Valid);
    }

    /// Returns the identity that limits of rate are for: becoming anonymous does not change them.
    pub(crate) fn identity_for_rates(&self) -> Option<Arc<Identity>> {
        let identity = self.identity()?;
        let former = if identity.is_nobody() { self.former.load_full() } else { None };
        Some(former.unwrap_or(identity))
    }

    /// Charges it until it ends.
    pub fn charge(&self, charge: Charge) {
        self.charges.lock().push(charge);
    }

    /// Takes a place among the sessions of guests until it ends.
    pub(crate) fn be_guest(&self, place: Use) {
        *self.guest.lock() = Some(place);
    }

    /// MS-SMB2 3.3.5.2.8: it has asked for something.
    pub fn use_now(&self) {
        // The flag is read first, because it is mostly set already, and writing shared memory at
        // each request would be slow.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a request came sealed.
    pub fn note_sealed(&self) {
        // As in `use_now`, the flag is read first.
        if !self.has_sealed.load(Ordering::Relaxed) {
            self.has_sealed.store(true, Ordering::Relaxed);
        }
    }

    /// True if messages without a request are to be sealed: the session demands that, or its client seals
    /// of its own will.
    pub fn seals(&self) -> bool {
        self.has_sealed.load(Ordering::Relaxed)
            || self.security().is_some_and(|security| security.encrypt_data)
    }

    /// How long it has had nothing open and asked for nothing, as far as two looks can tell.
    pub fn idle_for(&self, now: Instant) -> Duration {
        let is_used = self.is_used.swap(false, Ordering::Relaxed)
            || self.under_way.count() > 0
            || self.open_count() > 0;
        let mut used = self.used.lock();
        if is_used {
            *used = now;
        }
        now.duration_since(*used)
    }

    /// The holder that is charged for the session's objects.
    pub fn holder(&self) -> &Arc<Holder> {
        self.account.get().unwrap_or(&self.network)
    }

    /// The holder of the account that has logged on; none before.
    pub(crate) fn account(&self) -> Option<&Arc<Holder>> {
        self.account.get()
    }

    /// The client that its leases belong to.
    pub fn lease_client(&self) -> Guid {
        let owner = || self.owner.get().map_or("", String::as_str);
        *self.lease_client.get_or_init(|| client_id(self.client_guid, owner()))
    }

    /// True when nobody logged on when the session was made.
    pub fn is_anonymous(&self) -> bool {
        self.owner.get().is_some_and(String::is_empty)
    }

    /// True for the account that logged on when the session was made.
    pub fn is_owned_by(&self, identity: &Identity) -> bool {
        self.owner.get().is_some_and(|owner| eq_ignore_case(owner, &identity.user))
    }

    /// Sets the end of the authentication; None for never.
    pub fn set_expiration(&self, at: Option<FileTime>) {
        self.expires.store(at.map_or(u64::MAX, |at| at.0), Ordering::Release);
    }

    /// Expires the session if its time is over. The clock is read only for a session that can
    /// expire.
    pub fn expire_in_time(&self, now: impl FnOnce() -> FileTime) {
        let expires = self.expires.load(Ordering::Acquire);
        if expires != u64::MAX && self.state() == State::Valid && now().0 >= expires {
            self.expire();
        }
    }

    /// The session must authenticate again.
    pub fn expire(&self) {
        self.change_state(State::Expired);
    }

    /// Changes the state. A closed session stays closed.
    fn change_state(&self, to: State) {
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now != State::Closed as u8).then_some(to as u8)
        });
    }

    /// Keys and policy; none before authentication succeeded.
    pub fn security(&self) -> Option<&Security> {
        self.security.get()
    }

    /// Session.SupportsNotifications; false before authentication succeeded.
    pub fn supports_notifications(&self) -> bool {
        self.security().is_some_and(|security| security.supports_notifications)
    }

    /// The user who is logged on; none before authentication succeeded.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.load_full()
    }

    /// The same, as it will be too.
    pub fn shared_identity(&self) -> SharedIdentity {
        Arc::clone(&self.identity)
    }

    /// Replaces the identity of its user, whose groups may have changed.
    pub fn renew_identity(&self, identity: Identity) {
        self.identity.store(Some(Arc::new(identity)));
    }

    /// The tree connect `id`: NETWORK_NAME_DELETED when there is none.
    pub fn tree(&self, id: u32) -> Result<Arc<TreeConnect>, Status> {
        self.trees.read().get(&id).cloned().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// Adds a tree connect made by `make` from its new id.
    pub fn add_tree(
        &self,
        make: impl FnOnce(u32) -> TreeConnect,
    ) -> Result<Arc<TreeConnect>, Status> {
        let mut trees = self.trees.write();
        // While the user's folder was opened, the session may have ended.
        if self.state() == State::Closed {
            return Err(Status::USER_SESSION_DELETED);
        }
        if trees.len() >= TREES_PER_SESSION {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let id = loop {
            let id = self.next_tree.fetch_add(1, Ordering::Relaxed);
            if id != 0 && id != u32::MAX && !trees.contains_key(&id) {
                break id;
            }
        };
        let tree = make(id);
        let of_brake = if tree.braked.is_some() { BRAKE_CLIENT_BYTES } else { 0 };
        let bytes = TREE_CONNECT_BYTES + of_brake;
        let charge = self.holder().charge(Kind::TreeConnect, bytes)?;
        let tree = Arc::new(tree.charged(charge));
        trees.insert(id, Arc::clone(&tree));
        Ok(tree)
    }

    /// Ends a tree connect, and has `close` close what was opened through it.
    pub fn remove_tree(
        &self,
        tree: &TreeConnect,
        close: impl Fn(&Arc<Open>),
    ) -> Result<(), Status> {
        if !tree.disconnect() {
            return Err(Status::NETWORK_NAME_DELETED);
        }
        let _change = tree.begin_change();
        self.trees.write().remove(&tree.id);
        let closing: Vec<_> = {
            let mut opens = self.opens.write();
            in_order(opens.extract_if(|_, open| open.tree().id == tree.id))
        };
        let mut steps = Steps::default();
        closing.iter().for_each(|open| steps.take(|| close(open)));
        steps.end();
        Ok(())
    }

    /// The Open that a client names: FILE_CLOSED when there is none.
    pub fn open(&self, id: frevo_wire::file_id::FileId) -> Result<Arc<Open>, Status> {
        let opens = self.opens.read();
        match opens.get(&id.volatile) {
            Some(open) if open.file_id == id => Ok(Arc::clone(open)),
            _ => Err(Status::FILE_CLOSED),
        }
    }

    /// Takes an Open in that is new, or was disconnected. When the session or its tree ended
    /// meanwhile the Open is left as it is.
    pub fn attach_open(&self, open: &Arc<Open>) -> Result<(), Status> {
        let mut opens = self.opens.write();
        // An ending session takes its Opens out under the same lock, so a state other than
        // Closed stays valid until the Open is added.
        if self.state() == State::Closed {
            return Err(Status::USER_SESSION_DELETED);
        }
        if open.tree().is_disconnected() {
            return Err(Status::NETWORK_NAME_DELETED);
        }
        if opens.len() >= OPENS_PER_SESSION {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        opens.insert(open.file_id.volatile, Arc::clone(open));
        Ok(())
    }

    /// Takes an Open out, which the caller closes. Of two parallel closes one succeeds.
    pub fn take_open(&self, open: &Open) -> Result<(), Status> {
        let taken = self.opens.write().remove(&open.file_id.volatile);
        taken.map(drop).ok_or(Status::FILE_CLOSED)
    }

    /// The Open with this volatile half of its FileId.
    pub fn open_by_volatile(&self, id: u64) -> Option<Arc<Open>> {
        self.opens.read().get(&id).cloned()
    }

    /// All Opens, in the order in which they were made.
    pub fn opens(&self) -> Vec<Arc<Open>> {
        let mut opens: Vec<_> = self.opens.read().values().cloned().collect();
        opens.sort_unstable_by_key(|open| open.file_id.volatile);
        opens
    }

    /// All tree connects, in the order in which they were made.
    pub fn trees(&self) -> Vec<Arc<TreeConnect>> {
        let mut trees: Vec<_> = self.trees.read().values().cloned().collect();
        trees.sort_unstable_by_key(|tree| tree.id);
        trees
    }

    /// Looks at each Open, in no order; `look` must be short and take no lock.
    pub(crate) fn for_each_open(&self, look: impl FnMut(&Arc<Open>)) {
        self.opens.read().values().for_each(look);
    }

    /// Looks at each tree connect, in no order; `look` must be short and take no lock.
    pub(crate) fn for_each_tree(&self, look: impl FnMut(&Arc<TreeConnect>)) {
        self.trees.read().values().for_each(look);
    }

    /// Takes an Open out and closes it. Of two parallel closes one succeeds.
    /// Returns what is left to delete, beside the core.
    pub(crate) fn close_open(
        &self,
        open: &Open,
        files: &FileTable,
    ) -> Result<Vec<Deletion>, Status> {
        self.opens.write().remove(&open.file_id.volatile).ok_or(Status::FILE_CLOSED)?;
        Ok(open.close_briefly(files))
    }

    /// True when one of these Opens belongs to the session.
    pub fn has_any(&self, ids: &[OpenId]) -> bool {
        let opens = self.opens.read();
        ids.iter().any(|id| opens.contains_key(&id.0))
    }

    /// The work to end it, in Opens to be closed that have no locks.
    pub(crate) fn work_to_end(&self) -> usize {
        self.open_count() + self.locks.taken() / LOCKS_LIKE_AN_OPEN
    }

    /// How many Opens there are.
    pub fn open_count(&self) -> usize {
        self.opens.read().len()
    }

    /// Adds a channel: the connection numbered `connection`.
    pub fn add_channel(&self, connection: u64, handle: ConnectionHandle) -> Result<(), Status> {
        let mut channels = self.channels.lock();
        if channels.iter().any(|(id, _)| *id == connection) {
            return Ok(());
        }
        if channels.len() >= CHANNELS_PER_SESSION {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        channels.push((connection, handle));
        Ok(())
    }

    /// The connections of all channels.
    pub fn channel_handles(&self) -> Vec<ConnectionHandle> {
        self.channels.lock().iter().map(|(_, handle)| handle.clone()).collect()
    }

    /// A channel that is none of `tried`.
    pub fn channel_besides(&self, tried: &[u64]) -> Option<(u64, ConnectionHandle)> {
        let channels = self.channels.lock();
        channels.iter().find(|(id, _)| !tried.contains(id)).cloned()
    }

    /// True when this connection is a channel of the session.
    pub fn has_channel(&self, connection: u64) -> bool {
        self.channels.lock().iter().any(|(id, _)| *id == connection)
    }

    /// True when another connection is a channel of the session.
    pub fn has_channel_besides(&self, connection: u64) -> bool {
        self.channels.lock().iter().any(|(id, _)| *id != connection)
    }

    /// A connection has gone. True when it was the last channel.
    pub fn remove_channel(&self, connection: u64) -> bool {
        let mut channels = self.channels.lock();
        channels.retain(|(id, _)| *id != connection);
        channels.is_empty() && !planted!(SessionLeft)
    }

    /// Ends the session: every Open is closed unless it is one that waits for its
    /// client (MS-SMB2 3.3.7.1), every tree connect ended. True for the one
    /// caller that ended it.
    pub fn close(
        &self,
        clients: &ClientTable,
        parting: Parting,
        close_open: impl Fn(&Arc<Open>),
    ) -> bool {
        step();
        let was = self.state.swap(State::Closed as u8, Ordering::AcqRel);
        step();
        if was == State::Closed as u8 {
            return false;
        }
        self.under_way.end();
        let mut steps = Steps::default();
        // The map is emptied in one step, so that other threads need not wait for the lock while
        // the files are closed.
        let opens = std::mem::take(&mut *self.opens.write());
        for open in in_order(opens) {
            steps.take(|| {
                if !open.disconnect() {
                    close_open(&open);
                }
            });
        }
        let trees = std::mem::take(&mut *self.trees.write());
        trees.values().for_each(|tree| _ = tree.disconnect());
        if self.security.get().is_some() && self.dialect != Dialect::SMB_2_0_2 {
            clients.leave(self.client_guid, self.owner.get().map_or("", String::as_str));
        }
        self.under_way.give_up();
        let channels = std::mem::take(&mut *self.channels.lock());
        let channels = channels.into_iter().map(|(_, channel)| channel).collect();
        match parting {
            Parting::Told if self.supports_notifications() => {
                Farewell::new(self.id, channels).deliver();
            }
            Parting::Told | Parting::Silent => Farewell::new(self.id, channels).end(),
        }
        let offloads = std::mem::take(&mut *self.offloads.lock());
        steps.take(|| drop(offloads));
        self.charges.lock().clear();
        drop(self.guest.lock().take());
        steps.end();
        true
    }
}

/// Opens in the order in which they were made: what their end sets free shall
/// not depend on how a map lies in memory.
fn in_order(opens: impl IntoIterator<Item = (u64, Arc<Open>)>) -> Vec<Arc<Open>> {
    let mut opens: Vec<_> = opens.into_iter().collect();
    opens.sort_unstable_by_key(|(id, _)| *id);
    opens.into_iter().map(|(_, open)| open).collect()
}
