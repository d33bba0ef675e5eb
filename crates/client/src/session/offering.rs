//! The dialects that a session offers, and the ClientGuid that it offers them under: those of its client,
//! until the server of a cluster names an older dialect. MS-SMB2 3.2.5.5.

use frevo_proto::Dialect;
use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;

use crate::connection::Offer;
use crate::limits::CLUSTER_DIALECTS_NAMED;

/// The offer of a session's connections.
#[derive(Debug)]
pub(super) struct Offering(Mutex<State>);

#[derive(Debug)]
struct State {
    offer: Offer,
    /// Count of dialects that a cluster has named since a share was connected last.
    named: u32,
}

impl Offering {
    pub(super) const fn new(offer: Offer) -> Self {
        Self(Mutex::new(State { offer, named: 0 }))
    }

    /// An offer of one dialect, which a cluster has named to another session.
    pub(super) const fn after_refusal(offer: Offer) -> Self {
        Self(Mutex::new(State { offer, named: 1 }))
    }

    /// Returns the offer of the next connection.
    pub(super) fn offer(&self) -> Offer {
        self.0.lock().offer
    }

    /// Offers `dialect` alone after `refused`, under another ClientGuid: a server knows a client by its
    /// ClientGuid, and a client has one dialect (MS-SMB2 3.3.5.4). Nothing changes if the offer is
    /// another one by now. Returns false if the cluster has named too many dialects, one after the other.
    pub(super) fn narrow(&self, refused: Offer, dialect: Dialect, client_guid: Guid) -> bool {
        let mut state = self.0.lock();
        if state.offer != refused {
            return true;
        }
        if state.named >= CLUSTER_DIALECTS_NAMED {
            return false;
        }
        *state =
            State { offer: Offer { client_guid, only: Some(dialect) }, named: state.named + 1 };
        true
    }

    /// Returns true if one dialect alone is offered, and a share was connected by it. Before that a lost
    /// connection says nothing new about the dialect that the cluster has named.
    pub(super) fn may_widen(&self) -> bool {
        let state = self.0.lock();
        state.offer.only.is_some() && state.named == 0
    }

    /// Offers the dialects of the options again, under another ClientGuid.
    pub(super) fn widen(&self, client_guid: Guid) {
        *self.0.lock() = State { offer: Offer { client_guid, only: None }, named: 0 };
    }

    /// Notes that a share is connected: the cluster accepts the dialect.
    pub(super) fn note_accepted(&self) {
        self.0.lock().named = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_dialects_are_taken_one_after_the_other() {
        let guid = |number| Guid([number; 16]);
        let offering = Offering::new(Offer { client_guid: guid(0), only: None });
        for round in 0..3 {
            for number in 1..=3 {
                let (refused, only) = (offering.offer(), Some(Dialect::SMB_3_0_2));
                assert!(offering.narrow(refused, Dialect::SMB_3_0_2, guid(number)), "{round}");
                // Another request has met the refusal, too.
                assert!(offering.narrow(refused, Dialect::SMB_3_0_2, guid(8)));
                assert_eq!(offering.offer(), Offer { client_guid: guid(number), only });
            }
            assert!(!offering.narrow(offering.offer(), Dialect::SMB_3_0, guid(9)));
            assert_eq!(offering.offer().client_guid, guid(3), "the last one stays");
            assert!(!offering.may_widen());
            offering.note_accepted();
            assert!(offering.may_widen());
        }
    }
}
