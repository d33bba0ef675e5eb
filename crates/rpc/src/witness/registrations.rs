//! The registrations of clients: MS-SWN 3.1.1.3, with the rules of 3.1.4, 3.1.5 and 3.1.6.
//!
//! Times are counted from any moment that stays.

use super::cluster::{Cluster, ClusterState};
use super::pending::{Pending, Wanted};
use super::{
    InterfaceListReply, InterfaceState, NotifyReply, Register, RegisterEx, RegisterFlags, Version,
};
use crate::WinError;
use crate::limits::{
    MAX_WITNESS_NAME, MAX_WITNESS_REGISTRATIONS, WITNESS_NOTIFIES_PER_REGISTRATION, WITNESS_UNUSED,
};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::ndr::ContextHandle;

/// RegistrationKey: the UUID of a registration's context handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// The key in a context handle.
    pub fn of(handle: &ContextHandle) -> Self {
        let mut key = [0; 16];
        key.iter_mut().zip(handle.0.iter().skip(4)).for_each(|(to, from)| *to = *from);
        Self(key)
    }

    /// The context handle with this key.
    pub fn handle(self) -> ContextHandle {
        let mut handle = ContextHandle::NULL;
        handle.0.iter_mut().skip(4).zip(self.0).for_each(|(to, from)| *to = from);
        handle
    }
}

/// The arguments of a registration, of either call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    version: Version,
    is_known: bool,
    net_name: Option<String>,
    share_name: Option<String>,
    ip_address: Option<String>,
    client_name: Option<String>,
    flags: RegisterFlags,
    keep_alive: Option<Duration>,
}

impl From<Register> for Wish {
    fn from(call: Register) -> Self {
        let Register { version, net_name, ip_address, client_name } = call;
        let is_known = version == Version::V1;
        let (share_name, flags, keep_alive) = (None, RegisterFlags::EMPTY, None);
        Self { version, is_known, net_name, share_name, ip_address, client_name, flags, keep_alive }
    }
}

impl From<RegisterEx> for Wish {
    fn from(call: RegisterEx) -> Self {
        let RegisterEx { version, net_name, share_name, ip_address, client_name, flags, .. } = call;
        let is_known = version == Version::V2;
        let keep_alive = Some(Duration::from_secs(u64::from(call.keep_alive_seconds)));
        Self { version, is_known, net_name, share_name, ip_address, client_name, flags, keep_alive }
    }
}

/// A registration that is in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// WitnessClientVersion
    pub version: Version,
    /// WitnessClientName
    pub client: String,
    /// NetworkName
    pub net_name: String,
    /// IPAddress
    pub address: IpAddr,
    /// ShareName, in lower case. None for a client that does not want to know where a share moves.
    pub share: Option<Arc<str>>,
    /// IPNotificationRequired
    pub wants_addresses: bool,
    /// KeepAliveTime. None for version 1, whose notifications may wait for ever.
    pub keep_alive: Option<Duration>,
}

/// The place of a new registration.
#[derive(Debug, Clone, Copy)]
pub struct Registering {
    /// Its key, which is random.
    pub key: Key,
    /// The association to which its handle belongs.
    pub association: u64,
    /// The present time.
    pub now: Duration,
}

#[derive(Debug)]
struct Entry<T> {
    registration: Registration,
    association: u64,
    pending: Pending,
    /// LastUseTime
    last_use: Duration,
    /// IsAsyncNotifyRegistered: the calls that wait.
    waiting: usize,
    attached: T,
}

impl<T> Entry<T> {
    fn wanted(registration: &Registration) -> Wanted<'_> {
        Wanted {
            address: registration.address,
            share: registration.share.as_ref(),
            addresses: registration.wants_addresses,
        }
    }

    fn take_in(&mut self, news: &super::news::News) -> bool {
        self.pending.take_in(news, Self::wanted(&self.registration))
    }
}

/// A registration, for people.
#[derive(Debug)]
pub struct Known<'a, T> {
    /// The registration.
    pub registration: &'a Registration,
    /// True if a call waits for a notification.
    pub is_waiting: bool,
    /// News that wait for the client.
    pub queued: usize,
    /// The caller's part.
    pub attached: &'a T,
}

/// The answer to a client that asks for news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The call ends.
    Answer(NotifyReply),
    /// The call waits for news; with a time, no longer.
    Wait(Option<Duration>),
}

/// The answer to a client that asks for the interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interfaces {
    /// The call ends.
    Answer(InterfaceListReply),
    /// The call waits until a node is up.
    Wait,
}

/// The registrations of a server, each with a part of the caller's, `T`.
#[derive(Debug)]
pub struct Registrations<T> {
    cluster: Cluster,
    entries: BTreeMap<Key, Entry<T>>,
}

impl<T> Default for Registrations<T> {
    fn default() -> Self {
        Self { cluster: Cluster::default(), entries: BTreeMap::new() }
    }
}

const fn failed(status: WinError) -> NotifyReply {
    NotifyReply { notification: None, status }
}

impl<T> Registrations<T> {
    /// Takes in the state of the cluster, and calls `wake` for each client that is to be told.
    pub fn set_cluster(&mut self, state: &ClusterState, mut wake: impl FnMut(&T)) {
        let news = self.cluster.take_in(state);
        if news.is_empty() {
            return;
        }
        for entry in self.entries.values_mut() {
            if entry.take_in(&news) {
                wake(&entry.attached);
            }
        }
    }

    /// Answers WitnessrGetInterfaceList, MS-SWN 3.1.4.1.
    pub fn interfaces(&self) -> Interfaces {
        let interfaces = self.cluster.interfaces();
        let is_up = |state| state == InterfaceState::AVAILABLE;
        if interfaces.is_empty() {
            let status = WinError::NO_MORE_ITEMS;
            return Interfaces::Answer(InterfaceListReply { interfaces, status });
        }
        if !interfaces.iter().any(|interface| is_up(interface.state)) {
            return Interfaces::Wait;
        }
        Interfaces::Answer(InterfaceListReply { interfaces, status: WinError::SUCCESS })
    }

    /// Checks the arguments of WitnessrRegister or WitnessrRegisterEx, MS-SWN 3.1.4.2 and 3.1.4.5.
    ///
    /// # Errors
    /// The return value of the call.
    pub fn judge(&self, wish: Wish) -> Result<Registration, WinError> {
        if !wish.is_known {
            return Err(WinError::REVISION_MISMATCH);
        }
        let (Some(net_name), Some(ip_address), Some(client)) =
            (wish.net_name, wish.ip_address, wish.client_name)
        else {
            return Err(WinError::INVALID_PARAMETER);
        };
        let is_long = net_name.len().max(client.len()) > MAX_WITNESS_NAME;
        if is_long || !self.cluster.is_called(&net_name) {
            return Err(WinError::INVALID_PARAMETER);
        }
        let share = self.judge_share(wish.share_name.as_deref())?;
        // Deviation: text that is no address is refused, since nothing can happen to it.
        let address = ip_address.parse::<IpAddr>().map_err(|_| WinError::INVALID_PARAMETER)?;
        let address = address.to_canonical();
        if self.cluster.has_scale_out() && !self.cluster.has_address(address) {
            return Err(WinError::INVALID_STATE);
        }
        Ok(Registration {
            version: wish.version,
            client,
            net_name,
            address,
            share,
            wants_addresses: wish.flags.contains(RegisterFlags::IP_NOTIFICATION),
            keep_alive: wish.keep_alive,
        })
    }

    /// MS-SWN 3.1.4.5: a name counts only if a share is of the type STYPE_CLUSTER_SOFS.
    fn judge_share(&self, name: Option<&str>) -> Result<Option<Arc<str>>, WinError> {
        let Some(name) = name else { return Ok(None) };
        let share = self.cluster.share(name);
        match (share, self.cluster.has_scale_out()) {
            (Some(share), true) => Ok(Some(share)),
            (None, true) => Err(WinError::INVALID_STATE),
            (_, false) if self.cluster.by_share.is_empty() => Err(WinError::INVALID_STATE),
            (_, false) => Ok(None),
        }
    }

    /// Adds a registration. It has the news of the last moments at once: that its node has gone, or its
    /// share has moved.
    ///
    /// # Errors
    /// NO_SYSTEM_RESOURCES when there are [`MAX_WITNESS_REGISTRATIONS`].
    pub fn insert(
        &mut self,
        place: Registering,
        registration: Registration,
        attached: T,
    ) -> Result<(), WinError> {
        let Registering { key, association, now } = place;
        let is_null = key == Key([0; 16]);
        if self.entries.len() >= MAX_WITNESS_REGISTRATIONS
            || is_null
            || self.entries.contains_key(&key)
        {
            return Err(WinError::NO_SYSTEM_RESOURCES);
        }
        let news = self.cluster.news_at(registration.address, registration.share.as_ref());
        let (pending, waiting) = (Pending::default(), 0);
        let mut entry =
            Entry { registration, association, pending, last_use: now, waiting, attached };
        entry.take_in(&news);
        self.entries.insert(key, entry);
        Ok(())
    }

    fn find(&mut self, key: Key, association: u64) -> Option<&mut Entry<T>> {
        self.entries.get_mut(&key).filter(|entry| entry.association == association)
    }

    /// Begins a call of WitnessrAsyncNotify, MS-SWN 3.1.4.4. [`Self::ask`] is to follow, and
    /// [`Self::end_notify`] if the call ends without an answer.
    ///
    /// # Errors
    /// The return value of the call.
    pub fn begin_notify(
        &mut self,
        key: Key,
        association: u64,
        now: Duration,
    ) -> Result<&T, WinError> {
        let entry = self.find(key, association).ok_or(WinError::NOT_FOUND)?;
        if entry.waiting >= WITNESS_NOTIFIES_PER_REGISTRATION {
            return Err(WinError::NO_SYSTEM_RESOURCES);
        }
        entry.waiting = entry.waiting.saturating_add(1);
        entry.last_use = now;
        Ok(&entry.attached)
    }

    /// Answers a call of WitnessrAsyncNotify that has begun, if there is an answer by now.
    pub fn ask(&mut self, key: Key, now: Duration) -> Asked {
        let Some(entry) = self.entries.get_mut(&key) else {
            return Asked::Answer(failed(WinError::NOT_FOUND));
        };
        let until = entry.registration.keep_alive.map(|time| entry.last_use.saturating_add(time));
        let reply = match entry.pending.next(entry.registration.address) {
            Some(notification) => {
                NotifyReply { notification: Some(notification), status: WinError::SUCCESS }
            }
            // MS-SWN 3.1.5.2
            None if until.is_some_and(|until| until <= now) => failed(WinError::TIMEOUT),
            None => return Asked::Wait(until),
        };
        entry.waiting = entry.waiting.saturating_sub(1);
        entry.last_use = now;
        Asked::Answer(reply)
    }

    /// Ends a call of WitnessrAsyncNotify without an answer: its client does not want one.
    pub fn end_notify(&mut self, key: Key, now: Duration) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.waiting = entry.waiting.saturating_sub(1);
            entry.last_use = now;
        }
    }

    /// Ends a registration by WitnessrUnRegister or WitnessrUnRegisterEx, MS-SWN 3.1.4.3 and 3.1.4.6.
    ///
    /// # Errors
    /// INVALID_PARAMETER for a handle of no registration of this association.
    pub fn remove(&mut self, key: Key, association: u64) -> Result<T, WinError> {
        self.find(key, association).ok_or(WinError::INVALID_PARAMETER)?;
        let entry = self.entries.remove(&key).ok_or(WinError::INVALID_PARAMETER)?;
        Ok(entry.attached)
    }

    /// Ends the registrations of an association that has ended, MS-SWN 3.1.6.5.
    pub fn remove_all(&mut self, association: u64) -> Vec<T> {
        self.extract(|entry| entry.association == association)
    }

    /// Ends the registrations that were not used for [`WITNESS_UNUSED`], MS-SWN 3.1.5.1.
    pub fn expire(&mut self, now: Duration) -> Vec<T> {
        self.extract(|entry| {
            entry.waiting == 0 && entry.last_use.saturating_add(WITNESS_UNUSED) < now
        })
    }

    fn extract(&mut self, is_meant: impl Fn(&Entry<T>) -> bool) -> Vec<T> {
        let is_meant = |(_, entry): &(&Key, &Entry<T>)| is_meant(entry);
        let keys: Vec<Key> = self.entries.iter().filter(is_meant).map(|(key, _)| *key).collect();
        let removed = keys.iter().filter_map(|key| self.entries.remove(key));
        removed.map(|entry| entry.attached).collect()
    }

    /// Has the registered clients of a name use SMB at the addresses of a node, MS-SWN 3.1.6.2. Returns
    /// their number. None if no such node is up.
    pub fn move_client(
        &mut self,
        client: &str,
        to: &str,
        mut wake: impl FnMut(&T),
    ) -> Option<usize> {
        let node = self.cluster.nodes.get(to).filter(|node| node.is_up)?;
        let addresses = Arc::clone(&node.addresses);
        let mut count = 0_usize;
        let is_meant = |entry: &&mut Entry<T>| eq_ignore_case(&entry.registration.client, client);
        for entry in self.entries.values_mut().filter(is_meant) {
            entry.pending.move_client(&addresses);
            wake(&entry.attached);
            count = count.saturating_add(1);
        }
        Some(count)
    }

    /// The number of registrations.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All registrations, in no order that means anything.
    pub fn all(&self) -> impl Iterator<Item = Known<'_, T>> {
        self.entries.values().map(|entry| Known {
            registration: &entry.registration,
            is_waiting: entry.waiting > 0,
            queued: entry.pending.len(),
            attached: &entry.attached,
        })
    }
}
