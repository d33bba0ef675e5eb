//! Nodes in one process, with a model of etcd, a clock that the test moves, and small servers.

mod moves;
mod records;
mod support;
mod troubles;
