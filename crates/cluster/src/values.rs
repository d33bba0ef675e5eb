//! The values of the keys of [`keys`](crate::keys), as text ([`text`](crate::text)).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use frevo_etcd::types::LeaseId;

use crate::Epoch;
use crate::dialect::ClusterDialect;
use crate::fence::Fence;
use crate::ids::Generation;
use crate::limits::{ADDRESSES, NAME_BYTES, NAMED_BYTES, SHARES, TTL_MAX, TTL_MIN, WEIGHT_MAX};
use crate::names::{NodeName, ShareName, escape, unescape};
use crate::text::{Fields, NotAValue, Writer, word};

/// The shares that a node cannot serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unable {
    /// These, with names of at most [`NAMED_BYTES`].
    Named(BTreeSet<ShareName>),
    /// All but these, with names of at most [`NAMED_BYTES`].
    AllBut(BTreeSet<ShareName>),
}

impl Unable {
    /// True if the node cannot serve `share`.
    pub fn has(&self, share: &ShareName) -> bool {
        match self {
            Self::Named(named) => named.contains(share),
            Self::AllBut(able) => !able.contains(share),
        }
    }

    /// The list that has room: that of the shares which the node cannot serve, else that of those which it
    /// can serve, as far as there is room.
    pub fn of<'a>(
        unable: impl Iterator<Item = &'a ShareName> + Clone,
        able: impl Iterator<Item = &'a ShareName>,
    ) -> Self {
        let total = unable.clone().map(line_bytes).fold(0, usize::saturating_add);
        if total <= NAMED_BYTES {
            return Self::Named(unable.cloned().collect());
        }
        let mut bytes = 0_usize;
        let has_room = |name: &&ShareName| {
            bytes = bytes.saturating_add(line_bytes(name));
            bytes <= NAMED_BYTES
        };
        Self::AllBut(able.take_while(has_room).cloned().collect())
    }
}

/// The bytes of the line with the name of a share.
fn line_bytes(share: &ShareName) -> usize {
    let mut escaped = Vec::new();
    escape(share.as_str(), &mut escaped);
    escaped.len().saturating_add("unable=\n".len())
}

/// The newest form of records that a node reads. The records are bytes of the server's; a newer form has a
/// larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordForm(pub u8);

impl RecordForm {
    /// The form that a node reads whose registration does not tell one.
    pub const TOLD_BY_NONE: Self = Self(5);
}

/// The registration of a node that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeValue {
    /// The addresses at which it serves, at most [`ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
    /// Its part of the shares, in relation to other nodes: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The version of its program, for people.
    pub software: String,
    /// The number of its start.
    pub generation: Generation,
    /// The largest dialect that it speaks. An earlier version of Frevo did not say it, and speaks 3.1.1.
    pub dialect: ClusterDialect,
    /// True if it is to end: it takes no shares.
    pub leaving: bool,
    /// The shares that it cannot serve.
    pub unable: Unable,
    /// The newest form of records that it reads.
    pub records: RecordForm,
}

impl NodeValue {
    /// The bytes of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new("node");
        for address in &self.addresses {
            writer.plain("address", address);
        }
        writer.plain("weight", self.weight).text("software", &self.software);
        writer.plain("generation", self.generation.0);
        writer.plain("dialect", self.dialect.number()).plain("leaving", word(self.leaving));
        match &self.unable {
            Unable::AllBut(able) => {
                writer.plain("unable-all", word(true));
                for share in able {
                    writer.text("able", share.as_str());
                }
            }
            Unable::Named(named) => {
                for share in named {
                    writer.text("unable", share.as_str());
                }
            }
        }
        writer.plain("records", self.records.0);
        writer.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// For bytes that are no such value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAValue> {
        let fields = Fields::read("node", bytes)?;
        let address = |text: &str| text.parse().map_err(|_| NotAValue::Wrong("address"));
        let addresses = fields.all("address", ADDRESSES)?.into_iter().map(address);
        let weight = fields.parsed("weight")?;
        if weight == 0 || weight > WEIGHT_MAX {
            return Err(NotAValue::Wrong("weight"));
        }
        let software = fields.text("software")?;
        if software.len() > NAME_BYTES {
            return Err(NotAValue::Wrong("software"));
        }
        let named = |field| {
            let names = fields.all(field, SHARES)?.into_iter();
            names.map(|name| share(name, field)).collect::<Result<_, _>>()
        };
        let unable = match fields.optional("unable-all")? {
            Some(_) => Unable::AllBut(named("able")?),
            None => Unable::Named(named("unable")?),
        };
        Ok(Self {
            addresses: addresses.collect::<Result<_, _>>()?,
            weight,
            software,
            generation: Generation(fields.parsed("generation")?),
            dialect: optional_dialect(&fields, "dialect")?.unwrap_or(ClusterDialect::SMB_3_1_1),
            leaving: fields.flag("leaving")?,
            unable,
            records: match fields.optional("records")? {
                Some(form) => RecordForm(form.parse().map_err(|_| NotAValue::Wrong("records"))?),
                None => RecordForm::TOLD_BY_NONE,
            },
        })
    }
}

fn share(name: &str, field: &'static str) -> Result<ShareName, NotAValue> {
    let name = unescape(name.as_bytes()).ok_or(NotAValue::Wrong(field))?;
    ShareName::new(&name).map_err(|_| NotAValue::Wrong(field))
}

fn node(fields: &Fields<'_>, field: &'static str) -> Result<NodeName, NotAValue> {
    NodeName::new(&fields.text(field)?).map_err(|_| NotAValue::Wrong(field))
}

fn optional_node(fields: &Fields<'_>, field: &'static str) -> Result<Option<NodeName>, NotAValue> {
    let name = fields.optional_text(field)?;
    name.map(|name| NodeName::new(&name).map_err(|_| NotAValue::Wrong(field))).transpose()
}

fn optional_dialect(
    fields: &Fields<'_>,
    field: &'static str,
) -> Result<Option<ClusterDialect>, NotAValue> {
    let read = |text| ClusterDialect::from_number(text).ok_or(NotAValue::Wrong(field));
    fields.optional(field)?.map(read).transpose()
}

/// The reason of an ownership, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The share had no owner before.
    First,
    /// This node had given the share away.
    Given(NodeName),
    /// This node, or its earlier process, had gone.
    Failover(NodeName),
}

/// The number by which a node tells its own attempts to take shares apart, together with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TakeNumber(pub u64);

/// The owner of a share. The key's lease is that of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerValue {
    /// The node.
    pub node: NodeName,
    /// The attempt that made the key.
    pub take: TakeNumber,
    /// The reason.
    pub reason: Reason,
}

impl OwnerValue {
    /// The bytes of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new("owner");
        writer.text("node", self.node.as_str()).plain("take", self.take.0);
        match &self.reason {
            Reason::First => writer.plain("reason", "first"),
            Reason::Given(node) => writer.plain("reason", "given").text("from", node.as_str()),
            Reason::Failover(node) => {
                writer.plain("reason", "failover").text("from", node.as_str())
            }
        };
        writer.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// For bytes that are no such value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAValue> {
        let fields = Fields::read("owner", bytes)?;
        let reason = match fields.optional("reason")?.ok_or(NotAValue::Missing("reason"))? {
            "first" => Reason::First,
            "given" => Reason::Given(node(&fields, "from")?),
            "failover" => Reason::Failover(node(&fields, "from")?),
            _ => return Err(NotAValue::Wrong("reason")),
        };
        let take = TakeNumber(fields.parsed("take")?);
        Ok(Self { node: node(&fields, "node")?, take, reason })
    }
}

/// The end of the latest ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastEnd {
    /// It has not ended, or its owner could not say so.
    Open,
    /// The owner has given the share away, to this node if it was told one.
    Given(Option<NodeName>),
}

/// The latest owner of a share. It stays when the owner's key has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastValue {
    /// The node.
    pub node: NodeName,
    /// The node's lease at that time.
    pub lease: LeaseId,
    /// The lease's time, [`TTL_MIN`] to [`TTL_MAX`].
    pub ttl: Duration,
    /// The node's identity at the storage of the share.
    pub fence: Fence,
    /// The end.
    pub end: LastEnd,
}

impl LastValue {
    /// The bytes of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new("last");
        writer.text("node", self.node.as_str()).plain("lease", self.lease.0);
        writer.plain("ttl-ms", self.ttl.as_millis()).text("fence", &self.fence.to_text());
        match &self.end {
            LastEnd::Open => _ = writer.plain("given", word(false)),
            LastEnd::Given(to) => {
                writer.plain("given", word(true));
                if let Some(to) = to {
                    writer.text("to", to.as_str());
                }
            }
        }
        writer.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// For bytes that are no such value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAValue> {
        let fields = Fields::read("last", bytes)?;
        let ttl = Duration::from_millis(fields.parsed("ttl-ms")?);
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            return Err(NotAValue::Wrong("ttl-ms"));
        }
        let fence = Fence::from_text(&fields.text("fence")?);
        let given = fields.flag("given")?;
        let to = optional_node(&fields, "to")?;
        Ok(Self {
            node: node(&fields, "node")?,
            lease: LeaseId(fields.parsed("lease")?),
            ttl,
            fence: fence.map_err(|_| NotAValue::Wrong("fence"))?,
            end: if given { LastEnd::Given(to) } else { LastEnd::Open },
        })
    }
}

/// A planned move of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveValue {
    /// The node that is to have the share.
    pub to: NodeName,
    /// The ownership that is to end: a move that comes late is none.
    pub epoch: Epoch,
}

impl MoveValue {
    /// The bytes of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new("move");
        writer.text("to", self.to.as_str()).plain("epoch", self.epoch);
        writer.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// For bytes that are no such value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAValue> {
        let fields = Fields::read("move", bytes)?;
        Ok(Self { to: node(&fields, "to")?, epoch: Epoch(fields.parsed("epoch")?) })
    }
}

/// The largest dialect by which clients use shares of the cluster: MaxClusterDialect of MS-SMB2 3.3.1.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialectValue {
    /// The dialect.
    pub max: ClusterDialect,
}

impl DialectValue {
    /// The bytes of the value.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut writer = Writer::new("dialect");
        writer.plain("max", self.max.number());
        writer.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// For bytes that are no such value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAValue> {
        let fields = Fields::read("dialect", bytes)?;
        let max = optional_dialect(&fields, "max")?.ok_or(NotAValue::Missing("max"))?;
        Ok(Self { max })
    }
}

/// A mark for a node that is to have no shares. The key says it all; its value is never looked at, so
/// that a damaged mark counts, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainedValue;

impl DrainedValue {
    /// The bytes of the value.
    pub fn to_bytes(self) -> Vec<u8> {
        Writer::new("drained").finish()
    }
}

#[cfg(test)]
mod tests;
