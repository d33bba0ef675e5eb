//! The proof that all endpoints lead to one etcd.
//!
//! Each of several etcds would let another node own a share. Their numbers do not tell them apart: an etcd of
//! one member with the usual settings has the same numbers of cluster and member on each machine. So the
//! first endpoint that answers gets a key whose value no other etcd has, and every other endpoint must show
//! that value before a request goes there. While an endpoint shows another one, all requests are refused.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use parking_lot::Mutex;

use super::endpoint::{Mark, Member};
use super::exchange::Miss;
use super::options::Identity;
use super::shared::Shared;
use crate::json::{self, Call};
use crate::types::{
    Compare, Fact, Fault, Keys, LeaseId, Op, OpAnswer, Range, Relation, Revision, Txn,
};

/// The things that are known of the endpoints.
#[derive(Default)]
pub(super) struct Proofs {
    /// The turn to ask an endpoint.
    etcd: tokio::sync::Mutex<Known>,
    /// The reasons to refuse all requests, by endpoints.
    foreign: Mutex<BTreeMap<usize, String>>,
}

/// The etcd of this client.
#[derive(Default)]
struct Known {
    /// The value of the key. None before an endpoint has shown it.
    value: Option<Vec<u8>>,
    /// The number of its cluster.
    cluster: u64,
    /// The endpoint that has shown the value last, for people.
    url: String,
    /// The values that were offered.
    offers: u32,
}

impl Proofs {
    /// The fault of all requests while an endpoint leads to another etcd.
    pub(super) fn fault(&self) -> Result<(), Fault> {
        match self.foreign.lock().values().next() {
            Some(why) => Err(Fault::Refused(why.clone())),
            None => Ok(()),
        }
    }
}

impl Shared {
    /// True if an endpoint needs no proof, or no further one.
    pub(super) fn is_proven(&self, at: usize) -> bool {
        let is_believed = self.options.identity.is_none();
        is_believed || self.endpoints.get(at).is_some_and(|member| member.mark() == Mark::Proven)
    }

    /// Proves that an endpoint leads to the etcd of this client, unless that is known. The first proof looks at
    /// all others, too, so that nothing is asked of an etcd beside which there is another one.
    pub(super) async fn prove(&self, at: usize) -> Result<(), Miss> {
        let Some(identity) = &self.options.identity else { return Ok(()) };
        if self.prove_one(identity, at).await? {
            self.prove_all().await;
        }
        Ok(self.proofs.fault()?)
    }

    /// Proves an endpoint. True if it is the first one.
    async fn prove_one(&self, identity: &Identity, at: usize) -> Result<bool, Miss> {
        let gone = || Miss::NotHappened("there is no such endpoint".into());
        let member = self.endpoints.get(at).ok_or_else(gone)?;
        if member.mark() == Mark::Proven {
            return Ok(false);
        }
        // One endpoint after the other: of two at once, each could be the first.
        let mut known = self.proofs.etcd.lock().await;
        if member.mark() == Mark::Proven {
            return Ok(false);
        }
        let is_first = known.value.is_none();
        let found = self.look(identity, at).await.map_err(not_asked)?;
        let is_same = match &known.value {
            None => true,
            // The key of an etcd that was proven before may have been deleted by hand, with all others.
            Some(_) if member.mark() == Mark::Left && known.cluster == found.cluster => true,
            Some(value) => found.value.as_ref() == Some(value),
        };
        if !is_same {
            let why = other_etcd(member, &known.url);
            self.proofs.foreign.lock().insert(at, why.clone());
            return Err(Miss::End(Fault::Refused(why)));
        }
        let value = match found.value {
            Some(value) => value,
            None => self.offer(identity, at, &mut known).await.map_err(not_asked)?,
        };
        (known.value, known.cluster) = (Some(value), found.cluster);
        known.url.clone_from(&member.url);
        drop(known);
        member.set_mark(Mark::Proven);
        self.proofs.foreign.lock().remove(&at);
        Ok(is_first)
    }

    /// Looks at all endpoints that are not proven. Returns the reason if one leads to another etcd. One that
    /// does not answer is passed over: it is looked at before its first request.
    pub(super) async fn prove_all(&self) -> Option<String> {
        let identity = self.options.identity.as_ref()?;
        for at in 0..self.endpoints.count() {
            // The reason is kept with the other ones.
            _ = self.prove_one(identity, at).await;
        }
        self.proofs.foreign.lock().values().next().cloned()
    }

    /// Reads the key at one endpoint.
    async fn look(&self, identity: &Identity, at: usize) -> Result<Shown, Fault> {
        let range = range_of(identity);
        let body = self.ask_one(at, Call::Range, json::range(&range)?).await?;
        let cluster = json::cluster_of(&body)?;
        let value = json::range_answer(&body, &range)?.values.pop().map(|found| found.value);
        Ok(Shown { cluster, value })
    }

    /// Gives the key a value at one endpoint, unless it has one. Returns the one that it has. A lost answer
    /// leaves nothing known; the next value is another one.
    async fn offer(
        &self,
        identity: &Identity,
        at: usize,
        known: &mut Known,
    ) -> Result<Vec<u8>, Fault> {
        known.offers = known.offers.saturating_add(1);
        let value = match &known.value {
            Some(value) => value.clone(),
            None => alloc::format!("{} {}", identity.value, known.offers).into_bytes(),
        };
        let key = identity.key.clone();
        let txn = Txn {
            compares: Vec::from([Compare {
                key: key.clone(),
                relation: Relation::Equal,
                fact: Fact::CreateRevision(Revision(0)),
            }]),
            success: Vec::from([Op::Put { key, value: value.clone(), lease: LeaseId(0) }]),
            failure: Vec::from([Op::Range(range_of(identity))]),
        };
        let body = self.ask_one(at, Call::Txn, json::txn(&txn)?).await?;
        let answer = json::txn_answer(&body, &txn)?;
        match answer.answers.into_iter().next() {
            Some(OpAnswer::Put) => Ok(value),
            Some(OpAnswer::Range { mut values, .. }) => {
                let found = values.pop().map(|found| found.value);
                found.ok_or(Fault::Malformed("no key, and yet no place for it"))
            }
            _ => Err(Fault::Malformed("an answer to another operation")),
        }
    }
}

/// The key at one endpoint.
struct Shown {
    cluster: u64,
    value: Option<Vec<u8>>,
}

fn range_of(identity: &Identity) -> Range {
    let keys = Keys::One(identity.key.clone());
    Range { keys, limit: 1, after: Vec::new(), revision: Revision(0) }
}

/// The effect on a request of a question that came before it: the request was not sent.
fn not_asked(fault: Fault) -> Miss {
    match fault {
        Fault::Unavailable(why) => Miss::NotHappened(why),
        Fault::Malformed(what) => Miss::NotHappened(what.into()),
        fault => Miss::End(fault),
    }
}

fn other_etcd(member: &Member, known: &str) -> String {
    if member.url == known {
        return alloc::format!(
            "{known} leads to another etcd than before, so other nodes could serve the shares, too; this node \
             serves nothing: restart frevo when all nodes use that etcd"
        );
    }
    alloc::format!(
        "{} and {known} are not members of one etcd, so two nodes could serve one share; this node serves \
         nothing until they are: give all an empty ETCD_DATA_DIR and one ETCD_INITIAL_CLUSTER",
        member.url
    )
}
