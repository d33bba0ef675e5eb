//! Nodes in one process, with a model of etcd, a clock that the test moves, and small servers.

mod dialects;
mod moves;
mod owners;
mod records;
mod support;
mod told;
mod troubles;
