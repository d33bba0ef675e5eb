//! Shares made of their sections.

use std::sync::Arc;
use std::time::Duration;

use frevo_config::{
    AuditedOperation, BrakeChoice, BrakeSection, CompressChoice, FoundChoice, LongTime,
    RecycleSection, ScanSection, ScanTime, ShareSection, UnscannedChoice, Who, WormSection,
};
use frevo_server::Share;
use frevo_server::access_rules::{Names, Rules};
use frevo_server::audit::Operations;
use frevo_server::index::IndexRules;
use frevo_server::scanning::{FoundAct, ScanRules, ScanService, Scanning};
use frevo_server::share::{BrakeAction, BrakeLimits, BrakeRules, Compress, RecycleBin, WriteOnce};
use frevo_server::share_access::AccessList;
use frevo_store::Vfs;
use frevo_wire::fscc::Pattern;

use super::identities::Identities;

/// Bytes that each index may take, however few files it may have.
const INDEX_LEAST_BYTES: usize = 4 << 20;

/// A share made of its section and its opened folder.
pub(crate) fn share(section: &ShareSection, vfs: Arc<dyn Vfs>, identities: Identities) -> Share {
    let share = Share::disk(section.name.get_ref().as_str(), vfs)
        .comment(&section.comment)
        .read_only(section.read_only)
        .encrypt(section.encrypt)
        .compress(compress(section.compress))
        .continuous(section.continuous)
        .clustered(section.cluster)
        .hidden(section.hidden)
        .hide_unreadable(section.hide_unreadable)
        .run_as(identities.run_as)
        .force_group(identities.force_group)
        .guest(identities.guest)
        .write_once(section.worm.map(write_once))
        .brake(section.brake.as_ref().map(brake))
        .scanning(section.scan.as_ref().map(scanning))
        .index(section.index.then(|| index(section)))
        .host_path(section.path.get_ref().to_str())
        .rules(rules(section))
        .posix(section.posix)
        .case_sensitive(section.case_sensitive)
        .time_machine(section.time_machine)
        .spotlight(section.spotlight)
        .time_machine_limit(section.time_machine_max_size.map(|size| size.0))
        .change_notify(section.change_notify)
        .max_file_size(section.max_file_size.map(|size| size.0))
        .late_write_times(section.late_write_times)
        .cache_unbuffered(section.cache_unbuffered)
        .inherited_as_set(section.inherited_as_set)
        .forward_slashes(section.forward_slashes)
        .level2_oplocks(section.level2_oplocks)
        .max_connections(section.max_connections)
        .recycle(section.recycle.as_ref().map(bin))
        .samba_links(section.samba_links);
    match section.off_core {
        Some(false) => share,
        Some(true) => share.off_core(),
        // A new home takes many waits for the disk.
        None if section.home.is_some() => share.off_core(),
        None => share.off_core_while_waiting(),
    }
}

/// An index with room for `index_files` files, and for the bytes that so many take at most.
fn index(section: &ShareSection) -> IndexRules {
    let usual = IndexRules::default();
    let Some(max_files) = section.index_files else { return usual };
    let file_bytes = usual.max_bytes / usual.max_files;
    let max_bytes = max_files.saturating_mul(file_bytes).max(INDEX_LEAST_BYTES);
    IndexRules { max_files, max_bytes }
}

const fn compress(choice: Option<CompressChoice>) -> Compress {
    match choice {
        None | Some(CompressChoice::Off) => Compress::Off,
        Some(CompressChoice::Asked) => Compress::Asked,
        Some(CompressChoice::All) => Compress::All,
    }
}

/// Returns the access rules.
fn rules(section: &ShareSection) -> Rules {
    Rules {
        allow: names(&section.allow),
        deny: names(&section.deny),
        read_list: names(&section.read_list),
        write_list: names(&section.write_list),
        hosts_allow: section.hosts_allow.clone(),
        hosts_deny: section.hosts_deny.clone(),
        access_list: section.access_list.clone().map(AccessList::new).map(Arc::new),
    }
}

/// Returns the names of a list.
pub(super) fn names(listed: &[Who]) -> Names {
    Names::of(listed.iter().map(Who::as_str))
}

/// Returns the times after which files do not change any more.
fn write_once(section: WormSection) -> WriteOnce {
    WriteOnce::new(section.after.duration(), section.retain.map(LongTime::duration))
}

/// Time for which a client is slowed down, or its account is refused, unless the section says otherwise.
const BRAKE_LASTS: Duration = Duration::from_secs(3_600);

/// Returns the rules of the brake.
fn brake(section: &BrakeSection) -> BrakeRules {
    BrakeRules {
        limits: BrakeLimits {
            files_per_minute: section.files_per_minute,
            files_per_hour: section.files_per_hour,
            renames_per_minute: section.renames_per_minute,
            deletions_per_minute: section.deletions_per_minute,
        },
        action: match section.action {
            BrakeChoice::Alarm => BrakeAction::Alarm,
            BrakeChoice::Slow => BrakeAction::Slow,
            BrakeChoice::Hold => BrakeAction::Hold,
            BrakeChoice::Cut => BrakeAction::Cut,
        },
        slow_to: section.slow_to,
        lasts: section.lasts.map_or(BRAKE_LASTS, LongTime::duration),
        except: names(&section.except),
        except_paths: section.except_paths.clone(),
    }
}

/// Returns the scans for viruses.
fn scanning(section: &ScanSection) -> Scanning {
    let found = match (section.found, &section.quarantine) {
        (FoundChoice::Quarantine, Some(folder)) => FoundAct::Quarantine(folder.clone()),
        (FoundChoice::Rename, _) => FoundAct::Rename(section.suffix.clone()),
        _ => FoundAct::Deny,
    };
    let rules = ScanRules {
        at_open: section.scans_at(ScanTime::Open),
        at_close: section.scans_at(ScanTime::Close),
        found,
        max_size: section.max_size.0,
        lets_unscanned: section.unscanned == UnscannedChoice::Allow,
        exclude: section.exclude.iter().map(|pattern| Pattern::new(pattern, true)).collect(),
    };
    let at_once = usize::try_from(section.at_once).unwrap_or(1);
    let timeout = Duration::from_secs(section.timeout_seconds.into());
    Scanning::new(rules, scan_service(&section.service), at_once, timeout)
}

/// Returns the address of a service that scans.
pub(crate) fn scan_service(service: &frevo_config::ScanService) -> ScanService {
    use frevo_config::ScanService as Configured;
    match service.clone() {
        Configured::ClamdSocket(path) => ScanService::ClamdSocket(path),
        Configured::Clamd { host, port } => ScanService::Clamd { host, port },
        Configured::Icap { host, port, service } => ScanService::Icap { host, port, service },
    }
}

/// Returns the recycle bin.
fn bin(section: &RecycleSection) -> RecycleBin {
    let days = u64::from(section.keep_days);
    RecycleBin {
        folder: section.folder.as_str().to_owned(),
        keep: (days > 0).then(|| Duration::from_secs(days * 86_400)),
        max_size: section.max_size.map(|size| size.0),
        max_file_size: section.max_file_size.map(|size| size.0),
        exclude: section.exclude.iter().map(|pattern| Pattern::new(pattern, true)).collect(),
        versions: section.versions,
        ..RecycleBin::default()
    }
}

/// The operations on files that the audit log records: changes of who may do what,
/// unless the share says otherwise.
pub(crate) fn audited(section: &ShareSection) -> Operations {
    let Some(listed) = &section.audit else { return Operations::ACL };
    listed.iter().fold(Operations::EMPTY, |all, one| {
        all | match one {
            AuditedOperation::Open => Operations::OPEN,
            AuditedOperation::Create => Operations::CREATE,
            AuditedOperation::Write => Operations::WRITE,
            AuditedOperation::Rename => Operations::RENAME,
            AuditedOperation::Delete => Operations::DELETE,
            AuditedOperation::Acl => Operations::ACL,
            AuditedOperation::Attributes => Operations::ATTRIBUTES,
        }
    })
}

#[cfg(test)]
mod tests {
    use frevo_config::Config;

    use super::*;

    fn bin_of(keys: &str) -> RecycleBin {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        bin(Config::parse(&text).unwrap().shares[0].recycle.as_ref().unwrap())
    }

    #[test]
    fn bins_keep_files_for_days() {
        let default = bin_of("recycle = true");
        assert_eq!(default.folder, RecycleBin::default().folder);
        assert_eq!(default.keep, Some(Duration::from_secs(30 * 86_400)));
        assert_eq!((default.max_size, default.versions), (None, true));
        let table = bin_of("[share.recycle]\nkeep_days = 0\nmax_size = \"1G\"\nversions = false");
        assert_eq!((table.keep, table.max_size, table.versions), (None, Some(1 << 30), false));
    }
}
