//! The nodes of a cluster compared: reports that each node keeps in etcd, and `frevo cluster check`.

mod able;
mod certificate;
mod check;
mod dialect;
mod judged;
mod options;
mod report;
mod storage;

pub(crate) use check::{check, findings, look_at_endpoints};
pub(crate) use judged::Judged;
pub(crate) use options::options;
pub(crate) use report::Report;
