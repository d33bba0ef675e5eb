//! `[limits]`: memory, connections and what one account may have.

use serde::Deserialize;
use toml::Spanned;

use super::fault::Fault;
use super::limits;
use super::values::Size;

/// `[limits]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Largest READ and WRITE.
    pub max_io: Option<Spanned<Size>>,
    /// Largest reply to other requests.
    pub max_transact: Option<Spanned<Size>>,
    /// Connections at one time.
    pub connections: Option<usize>,
    /// Connections of one account.
    pub connections_per_user: Option<usize>,
    /// Connections from one address.
    pub connections_per_address: Option<usize>,
    /// Sessions of one account.
    pub sessions_per_user: Option<usize>,
    /// Opens of one account.
    pub opens_per_user: Option<usize>,
    /// Minutes after which an idle session ends.
    pub idle_session_minutes: Option<u32>,
    /// How long a server that was told to stop waits for requests under way.
    pub drain_seconds: Option<u64>,
    /// Memory that buffers of all connections may hold together.
    pub memory: Option<Spanned<Size>>,
    /// Memory that each core keeps for reuse.
    pub pool_per_core: Option<Size>,
}

impl LimitsSection {
    /// Limits that are out of their range.
    pub(super) fn faults(&self, text: &str) -> Vec<Fault> {
        let most = limits::MAX_IO_MAX;
        let mut faults = Vec::new();
        for (key, value) in [("max_io", &self.max_io), ("max_transact", &self.max_transact)] {
            let Some(value) = value else { continue };
            if !(limits::MAX_IO_MIN..=most).contains(&value.get_ref().0) {
                let what = format!("{key} must be from {} to {most} bytes", limits::MAX_IO_MIN);
                faults.push(Fault::at(text, &value.span(), what));
            }
        }
        if let Some(memory) = self.memory.as_ref().filter(|m| m.get_ref().0 < limits::MEMORY_MIN) {
            let what = format!("memory must be at least {} MiB", limits::MEMORY_MIN >> 20);
            faults.push(Fault::at(text, &memory.span(), what));
        }
        let mut fault = |what: &str| {
            faults.push(Fault::new(what));
        };
        if self.connections == Some(0) {
            fault("connections must be at least 1; with 0 no client could connect");
        }
        for (key, value) in [
            ("connections_per_user", self.connections_per_user),
            ("connections_per_address", self.connections_per_address),
            ("sessions_per_user", self.sessions_per_user),
            ("opens_per_user", self.opens_per_user),
        ] {
            if value == Some(0) {
                fault(&format!("{key} must be at least 1; with 0 no client could use the server"));
            }
        }
        if self.idle_session_minutes.is_some_and(|m| m > limits::IDLE_SESSION_MINUTES_MAX) {
            let most = limits::IDLE_SESSION_MINUTES_MAX;
            fault(&format!("idle_session_minutes must be at most {most} (a year); 0 means never"));
        }
        if self.drain_seconds.is_some_and(|seconds| seconds > limits::DRAIN_SECONDS_MAX) {
            let most = limits::DRAIN_SECONDS_MAX;
            fault(&format!("drain_seconds must be at most {most} (an hour)"));
        }
        faults
    }
}
