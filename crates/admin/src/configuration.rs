//! The configuration of a program: its reloads, and the part of it that is not in force.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// The configuration of a program, which others change in files.
pub trait Reloading: Send + Sync {
    /// Reads the configuration again, and applies it as a whole or not at all.
    fn reload(&self) -> Reloaded<'_>;

    /// Returns what is not in force of the files.
    fn state(&self) -> ConfigurationState;
}

/// The end of [`Reloading::reload`]. Its error is the reason why the old configuration stays in force.
pub type Reloaded<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// The part of a configuration that is not in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigurationState {
    /// The refusal of the files: the configuration before them is in force. None after a reload that was not
    /// refused.
    pub refused: Option<RefusedReload>,
    /// Shares of the configuration that are not served.
    pub not_served: Vec<UnservedShare>,
}

/// Files of a configuration that were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedReload {
    /// The moment of the first of the reloads that were refused since, seconds since 1970.
    pub since: u64,
    /// The reason of the latest one, for people.
    pub why: String,
}

/// A share of a configuration that is not served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnservedShare {
    /// The name of the share.
    pub share: String,
    /// The reason, for people.
    pub reason: String,
}
