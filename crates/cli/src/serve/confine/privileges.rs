//! Rights of a process that a server of files does not need: privileges of root,
//! new ones by running programs, and memory that others can see.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use frevo_fences::Kind;
use frevo_fences::hands::SetUp;

use super::needs::Needs;

/// Files of any owner, and set-group-ID on folders of any group. Not CAP_FSETID: with it a
/// write to a program would leave set-user-ID on.
const FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SETGID);

/// Use of files as other users, beside [`FILES`].
const USERS: CapabilitySet = CapabilitySet::SETUID;

/// Capabilities that the kernel may know; more are refused and passed over.
const CAPABILITIES: u32 = 64;

/// Forbids core files and the eyes of other processes: memory holds keys. Neither
/// can fail on a kernel that Frevo runs on, and both need no privilege.
pub(super) fn close_memory() -> Result<(), String> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|errno| format!("core files: {errno}"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| format!("memory: {errno}"))
}

/// Gives up all capabilities but those that `needs` names, on this thread and those
/// that it starts, and the way to get them back by running a program.
pub(super) fn drop_capabilities(needs: &Needs) -> Result<(), String> {
    set_no_new_privs(true).map_err(|errno| format!("no_new_privs: {errno}"))?;
    keep(capabilities_for(needs))
}

/// Gives up all capabilities: for a process that only asks.
pub(super) fn drop_all_capabilities() -> Result<(), String> {
    set_no_new_privs(true).map_err(|errno| format!("no_new_privs: {errno}"))?;
    keep(CapabilitySet::empty())
}

/// Gives up all capabilities but those by which the process with rights acts. Its sockets for packets are
/// open already.
pub(super) fn keep_for_acting(set_up: &SetUp) -> Result<(), String> {
    set_no_new_privs(true).map_err(|errno| format!("no_new_privs: {errno}"))?;
    let mut kept = CapabilitySet::empty();
    if set_up.addresses().next().is_some() {
        kept |= CapabilitySet::NET_ADMIN;
    }
    // A connection of FUSE is its user's, and the keyring of `ceph` another user's.
    if set_up.uses(Kind::Fuse) || set_up.uses(Kind::Ceph) {
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    // Without it the kernel sends no commands of reservations to disks.
    if set_up.uses(Kind::ScsiPr) {
        kept |= CapabilitySet::SYS_RAWIO;
    }
    keep(kept)
}

/// Gives up all capabilities but those by which snapshots of btrfs are made of any owner's folder and removed.
pub(super) fn keep_for_snapshots() -> Result<(), String> {
    set_no_new_privs(true).map_err(|errno| format!("no_new_privs: {errno}"))?;
    let files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
    keep(files | CapabilitySet::SYS_ADMIN)
}

/// The capabilities that serving takes.
pub(super) fn capabilities_for(needs: &Needs) -> CapabilitySet {
    let mut kept = FILES;
    if needs.acts_as_users {
        kept |= USERS;
    }
    if needs.commits_files {
        kept |= CapabilitySet::LINUX_IMMUTABLE;
    }
    if needs.uses_rdma {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    if needs.sets_privileged_attributes {
        kept |= CapabilitySet::SYS_ADMIN;
    }
    kept
}

fn keep(kept: CapabilitySet) -> Result<(), String> {
    let held = capabilities(None).map_err(|errno| format!("capabilities: {errno}"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..CAPABILITIES {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if !kept.contains(one) {
                // The kernel refuses to remove capabilities that it does not know, which is no
                // error.
                let _ = remove_capability_from_bounding_set(one);
            }
        }
    }
    // Linux before 4.3 has no ambient capabilities, so an error of this call is ignored.
    let _ = clear_ambient_capability_set();
    let sets = CapabilitySets {
        effective: held.effective & kept,
        permitted: held.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(|errno| format!("capabilities: {errno}"))
}

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

/// Makes root's process nobody's: it reads what everybody may read.
pub(super) fn become_nobody() {
    become_nobody_in(NOBODY);
}

/// As [`become_nobody`], in a group that may ask a service of the host.
pub(super) fn become_nobody_in(group: u32) {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(group)));
    // If the process may not change its user, it does not run as root, so errors are ignored. The
    // calls change only the calling thread, which is the only one of the process.
    let _ = set_thread_groups(&[]);
    let _ = set_thread_res_gid(gid, gid, gid);
    let _ = set_thread_res_uid(uid, uid, uid);
    // The change of the user has made the process's memory readable for that user, so
    // `close_memory` forbids the access again.
    let _ = close_memory();
}
