//! The cluster that a server is a node of: its state, and moves of shares.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// A node of a cluster, which the interface shows and gives commands.
pub trait ClusterNode: Send + Sync {
    /// Returns the state of the cluster, as this node knows it.
    fn view(&self) -> ClusterView;

    /// Carries out an act. It ends when the act has had its effect.
    fn act(&self, act: ClusterAct) -> Acting<'_>;
}

/// The end of an act: a sentence if it had no effect.
pub type Acting<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// An act of an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClusterAct {
    /// Moves a unit to a node.
    Move {
        /// The name of a share or a group.
        share: String,
        /// The node.
        node: String,
    },
    /// Moves all units of a node to others, and gives it none.
    Drain {
        /// The node.
        node: String,
    },
    /// Lets a node have units again.
    Undrain {
        /// The node.
        node: String,
    },
    /// Lets clients use shares of the cluster by this dialect, if all nodes speak it.
    Raise {
        /// `3.0`, `3.0.2` or `3.1.1`.
        dialect: String,
    },
    /// Has a client that has registered with the witness of this node use SMB at another node.
    MoveClient {
        /// The name of the client's machine.
        client: String,
        /// The node.
        node: String,
    },
}

/// The state of a cluster, as a node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterView {
    /// The name of the cluster.
    pub cluster: String,
    /// This node.
    pub node: String,
    /// True if this node is registered.
    pub is_registered: bool,
    /// True if etcd answers.
    pub etcd_answers: bool,
    /// True while this node serves what it owns.
    pub is_serving: bool,
    /// The largest dialect by which clients use shares of the cluster. None if there is no limit.
    pub max_dialect: Option<String>,
    /// The nodes that are up.
    pub nodes: Vec<ClusterMember>,
    /// The units of this node's configuration.
    pub units: Vec<ClusterUnit>,
    /// The last happenings at this node, the latest first.
    pub happenings: Vec<ClusterHappening>,
}

/// A node that is up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterMember {
    /// Its name.
    pub name: String,
    /// The addresses at which it serves.
    pub addresses: Vec<String>,
    /// Its part of the units.
    pub weight: u32,
    /// The number of units that it owns.
    pub units: usize,
    /// `up`, `drained`, `leaving`, or `behind` for one that does not speak the dialect that the cluster demands.
    pub state: String,
    /// The largest dialect that it speaks. None if that is not known.
    pub dialect: Option<String>,
}

/// A unit: shares that have one owner together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterUnit {
    /// Its name.
    pub name: String,
    /// The shares in it.
    pub shares: Vec<String>,
    /// Its owner, if it has one.
    pub owner: Option<String>,
    /// The state at this node.
    pub state: String,
    /// The number of the ownership; 0 without an owner.
    pub epoch: u64,
    /// Seconds for which it has its owner. None if that is longer than this node runs.
    pub owned_seconds: Option<u64>,
    /// The reason why it has this owner.
    pub because: Option<String>,
    /// The kind of its fence. None while its storage cannot be used here.
    pub fence: Option<String>,
}

/// A thing that has happened at this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterHappening {
    /// Seconds since then.
    pub seconds_ago: u64,
    /// True for a thing that an administrator should know of.
    pub is_warning: bool,
    /// The sentence.
    pub what: String,
}
