//! The parts of a server that the values of a configuration stand for.
//!
//! `frevo-config` reads texts and knows no server; `frevo-server` takes parts from any program.
//! This module makes the parts of the values, by the server's public builders only.

pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod folder;
pub(crate) mod identities;
mod namespaces;
mod settings;
mod share;

pub(crate) use namespaces::{namespaces, with_namespaces};
pub(crate) use settings::{limits, settings};
pub(crate) use share::{audited, scan_service, share};
