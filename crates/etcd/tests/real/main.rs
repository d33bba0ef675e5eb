//! The client against etcd itself, and against servers that answer nonsense.
//!
//! Tests of etcd need its program (Debian: `etcd-server`); without it they say that they are skipped.
//! `FREVO_ETCD` names another program than the one of the path.

mod calls;
mod fake;
mod members;
mod model;
mod secured;
mod support;
mod watches;
