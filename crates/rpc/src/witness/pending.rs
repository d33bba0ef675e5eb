//! The news that wait for a client.

use super::news::{Change, News};
use super::{AddressFlags, AddressInfo, Notification, ResourceChange};
use crate::limits::MAX_WITNESS_QUEUED;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

/// An address that has come or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressChange {
    address: IpAddr,
    is_up: bool,
}

/// The news that wait for one client: PendingChangeNotifications, PendingMoveNotification,
/// PendingShareMoveNotification and PendingIPNotification of MS-SWN 3.1.1.3.
#[derive(Debug, Default)]
pub(super) struct Pending {
    changes: VecDeque<Change>,
    client_move: Option<Arc<[IpAddr]>>,
    share_move: Option<Arc<[IpAddr]>>,
    addresses: VecDeque<AddressChange>,
}

/// The news that a client wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) address: IpAddr,
    pub(super) share: Option<&'a Arc<str>>,
    pub(super) addresses: bool,
}

/// Appends to a queue, whose oldest entry makes room.
fn push<E>(queue: &mut VecDeque<E>, entry: E) {
    if queue.len() >= MAX_WITNESS_QUEUED {
        queue.pop_front();
    }
    queue.push_back(entry);
}

impl Pending {
    /// Takes in the news that the client wants. True if there are any.
    pub(super) fn take_in(&mut self, news: &News, wanted: Wanted<'_>) -> bool {
        let Wanted { address, share, addresses } = wanted;
        let mut has_any = false;
        for change in news.changes.get(&address).into_iter().flatten() {
            push(&mut self.changes, change.clone());
            has_any = true;
        }
        match share {
            // A share whose address moves with it needs no word of the move.
            Some(share) => {
                let moved = news.shares.get(share).filter(|moved| !moved.to.contains(&address));
                if let Some(moved) = moved {
                    self.share_move = Some(Arc::clone(&moved.to));
                    has_any = true;
                }
            }
            None => {
                if let Some(to) = news.moves.get(&address) {
                    self.move_client(to);
                    has_any = true;
                }
            }
        }
        if addresses {
            for (&address, &is_up) in &news.addresses {
                self.addresses.retain(|known| known.address != address);
                push(&mut self.addresses, AddressChange { address, is_up });
                has_any = true;
            }
        }
        has_any
    }

    /// Has the client use other addresses.
    pub(super) fn move_client(&mut self, to: &Arc<[IpAddr]>) {
        self.client_move = Some(Arc::clone(to));
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        let moves = usize::from(self.client_move.is_some());
        let moves = moves.saturating_add(usize::from(self.share_move.is_some()));
        self.changes.len().saturating_add(self.addresses.len()).saturating_add(moves)
    }

    /// Takes out the next notification for a client at `address`: one answer has one type.
    pub(super) fn next(&mut self, address: IpAddr) -> Option<Notification> {
        if !self.changes.is_empty() {
            let change = |Change { state, node }: Change| ResourceChange {
                state,
                name: node.map_or_else(|| address.to_string(), |node| node.to_string()),
            };
            let changes = core::mem::take(&mut self.changes);
            return Some(Notification::ResourceChange(changes.into_iter().map(change).collect()));
        }
        let online = |addresses: Arc<[IpAddr]>| {
            let of = |ip: &IpAddr| AddressInfo::of(*ip, AddressFlags::ONLINE);
            addresses.iter().map(of).collect::<Vec<_>>()
        };
        if let Some(to) = self.client_move.take() {
            return Some(Notification::ClientMove(online(to)));
        }
        if let Some(to) = self.share_move.take() {
            return Some(Notification::ShareMove(online(to)));
        }
        if self.addresses.is_empty() {
            return None;
        }
        let of = |AddressChange { address, is_up }: AddressChange| {
            let online = if is_up { AddressFlags::ONLINE } else { AddressFlags::OFFLINE };
            AddressInfo::of(address, online)
        };
        let addresses = core::mem::take(&mut self.addresses);
        Some(Notification::IpChange(addresses.into_iter().map(of).collect()))
    }
}
