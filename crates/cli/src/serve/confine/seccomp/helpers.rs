//! The filters of the processes that help the server. They cannot report a refused call, and
//! get EPERM.

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompRule};

use super::{Rules, any, arguments, compiled, install};
use crate::serve::confine::syscalls;

/// A process that helps the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve::confine) enum Helper {
    /// Announces the server on the network.
    Discovery,
    /// Starts the process that asks the name service.
    NamesKeeper,
    /// Asks the name service; over the network too if the host's modules do.
    Names { network: bool },
    /// Asks domain controllers.
    Directory,
    /// Probes servers of targets.
    Targets,
    /// Connects with virus scanners.
    Scanners,
    /// Asks a directory of accounts.
    Ldap,
    /// Runs Samba's programs, which ask winbind.
    Winbind,
    /// Acts for a node of a cluster; on disks of SCSI too.
    Hands { disks: bool },
    /// Makes snapshots of btrfs.
    SnapshotHands,
    /// Sends traces to a collector.
    #[cfg(feature = "traces")]
    Traces,
}

impl Helper {
    /// Confines this thread and those that it starts to the calls that the process takes.
    pub(in crate::serve::confine) fn confine_calls(self) -> Result<(), String> {
        install(&self.programs()?)
    }

    pub(super) fn programs(self) -> Result<[BpfProgram; 3], String> {
        let hostile = syscalls::HOSTILE.iter().chain(syscalls::HOSTILE_OLD).copied();
        let kept: &[i64] = match self {
            // With this call the process copies the descriptors of its own sockets, to find them.
            // The kernel refuses the sockets of other users.
            Self::Discovery => &[libc::SYS_pidfd_getfd],
            Self::NamesKeeper => syscalls::STARTING_OLD,
            Self::Winbind => syscalls::PROGRAMS,
            _ => &[],
        };
        let started = if self == Self::Winbind { syscalls::STARTING_OLD } else { &[] };
        let hostile = hostile.filter(|call| !kept.contains(call) && !started.contains(call));
        compiled(hostile, self.allowed(), SeccompAction::Errno(libc::EPERM.unsigned_abs()))
    }

    fn allowed(self) -> Result<Rules, BackendError> {
        let mut rules = Rules::new();
        let mut allow = |lists: &[&[i64]]| {
            rules.extend(lists.iter().flat_map(|list| list.iter()).map(|call| (*call, Vec::new())));
        };
        allow(&[syscalls::HELPER, syscalls::HELPER_OLD]);
        match self {
            Self::Discovery => allow(&[syscalls::DISCOVERY]),
            #[cfg(feature = "traces")]
            Self::Traces => {}
            Self::Names { .. } | Self::Directory | Self::Targets | Self::Scanners | Self::Ldap => {
                allow(&[syscalls::MODULES, syscalls::MODULES_OLD]);
            }
            Self::Hands { disks } => {
                allow(&[syscalls::MODULES, syscalls::MODULES_OLD, syscalls::HANDS]);
                if disks {
                    allow(&[syscalls::HANDS_OF_DISKS]);
                }
            }
            Self::SnapshotHands => allow(&[syscalls::MODULES, syscalls::SNAPSHOT_HANDS]),
            Self::NamesKeeper => allow(&[
                syscalls::MODULES,
                syscalls::MODULES_OLD,
                syscalls::STARTING,
                syscalls::STARTING_OLD,
            ]),
            Self::Winbind => allow(&[
                syscalls::MODULES,
                syscalls::MODULES_OLD,
                syscalls::STARTING,
                syscalls::STARTING_OLD,
                syscalls::PROGRAMS,
                syscalls::PROGRAMS_OLD,
            ]),
        }
        self.arguments(&mut rules)?;
        rules.insert(libc::SYS_socket, self.sockets()?);
        rules.insert(libc::SYS_socketpair, arguments::pairs()?);
        let of_disks = syscalls::DISK_IOCTLS.iter().filter(|_| self == Self::Hands { disks: true });
        let of_snapshots = syscalls::SNAPSHOT_IOCTLS.iter().filter(|_| self == Self::SnapshotHands);
        let ioctls = syscalls::HELPER_IOCTLS.iter().chain(of_disks).chain(of_snapshots).copied();
        rules.insert(libc::SYS_ioctl, any(1, ioctls)?);
        rules.insert(libc::SYS_fcntl, any(1, syscalls::HELPER_FCNTLS.iter().copied())?);
        arguments::sending(&mut rules)?;
        Ok(rules)
    }

    fn arguments(self, rules: &mut Rules) -> Result<(), BackendError> {
        match self {
            Self::NamesKeeper | Self::Winbind => arguments::further_processes(rules)?,
            _ => arguments::own_process(rules)?,
        }
        match self {
            Self::Discovery => arguments::no_code(rules)?,
            #[cfg(feature = "traces")]
            Self::Traces => arguments::no_code(rules)?,
            _ => arguments::code_from_files(rules)?,
        }
        if matches!(self, Self::NamesKeeper | Self::Winbind) {
            // This helper starts processes, which confine themselves by prctl and may abort by a
            // signal to themselves.
            let prctls = syscalls::PRCTLS.iter().chain(syscalls::PRCTLS_OF_STARTING).copied();
            rules.insert(libc::SYS_prctl, any(0, prctls)?);
            rules.insert(libc::SYS_tgkill, Vec::new());
        }
        Ok(())
    }

    fn sockets(self) -> Result<Vec<SeccompRule>, BackendError> {
        let mut sockets = Vec::new();
        let (has_streams, has_datagrams) = match self {
            Self::Discovery
            | Self::Directory
            | Self::Targets
            | Self::Scanners
            | Self::Ldap
            | Self::Hands { .. } => (true, true),
            Self::Names { network } => (network, network),
            Self::NamesKeeper => (true, true),
            Self::Winbind | Self::SnapshotHands => (false, false),
            #[cfg(feature = "traces")]
            Self::Traces => (true, false),
        };
        if has_streams {
            sockets.extend(arguments::internet(libc::SOCK_STREAM)?);
        }
        if has_datagrams {
            sockets.extend(arguments::internet(libc::SOCK_DGRAM)?);
        }
        #[cfg(feature = "traces")]
        if self == Self::Traces {
            return Ok(sockets);
        }
        sockets.push(arguments::unix()?);
        sockets.extend(arguments::netlink()?);
        Ok(sockets)
    }
}
