//! Rights on a share: its lists of users, groups and networks, and the users of the host as
//! whom files are used.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

#[path = "durable/asking.rs"]
mod asking;
#[path = "ioctl/calls.rs"]
mod calls;
#[path = "races/cores.rs"]
mod cores;
#[path = "rights/crowd.rs"]
mod crowd;
#[path = "rights/impersonation.rs"]
mod impersonation;
#[path = "rights/lasting.rs"]
mod lasting;
#[path = "rights/lists.rs"]
mod lists;
#[path = "rights/owners.rs"]
mod owners;
#[path = "rights/paths.rs"]
mod paths;
#[path = "rights/posix_lists.rs"]
mod posix_lists;
#[path = "rights/probe.rs"]
mod probe;
#[path = "rights/quotas.rs"]
mod quotas;
#[path = "rights/reviewed.rs"]
mod reviewed;
#[path = "rights/takeover.rs"]
mod takeover;
#[path = "rights/team.rs"]
mod team;
#[path = "rights/unseen.rs"]
mod unseen;
