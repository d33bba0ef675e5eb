//! The SID of the machine, kept with the accounts: SIDs in access lists outlive the state
//! directory's other files.

use std::path::Path;
use std::process::Command;

use frevo_auth::AccountFile;
use frevo_config::{Config, MachineSid};
use frevo_server::Settings;
use frevo_store::vfs::OpenHow;
use frevo_store::{Name, Vfs};
use frevo_wire::dtyp::{AceBody, SecurityDescriptor, Sid};
use frevo_wire::fscc::fold_name;
use sha2::{Digest as _, Sha256};

use crate::exit::Failure;
use crate::{accounts, secret_file, state};

/// Entries of a shared folder whose access lists are looked at.
const ENTRIES_MAX: usize = 64;
/// The smb.conf of this host's Samba.
pub(crate) const SMB_CONFS: [&str; 2] = ["/etc/samba/smb.conf", "/usr/local/samba/etc/smb.conf"];

/// Puts the SID in force into the settings: that of the configuration, else that of the account
/// file.
pub(crate) fn apply(settings: &mut Settings, accounts: &AccountFile) {
    if settings.machine_sid.is_none() {
        settings.machine_sid = accounts.header().machine;
        settings.has_host_sids = accounts.header().is_samba;
    }
}

/// The values by which access lists name the accounts of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AccountSids {
    /// The SID of the machine; None if it is not known yet, or there is no account.
    pub(crate) machine: Option<String>,
    /// A digest of the names of all accounts with their numbers (RIDs).
    pub(crate) accounts: String,
}

impl AccountSids {
    /// Reads the account file of a server whose configuration has `configured` as the SID. None if it cannot be
    /// read.
    pub(crate) fn read(configured: Option<Sid>, users_file: &Path) -> Option<Self> {
        let file = accounts::read(users_file).ok()?;
        let one = |entry: &frevo_auth::smbpasswd::Entry| {
            format!("{} {}\n", fold_name(&entry.name), entry.rid.unwrap_or_default())
        };
        let mut all: Vec<String> = file.entries().map(one).collect();
        all.sort_unstable();
        let machine = configured.or(file.header().machine).filter(|_| !all.is_empty());
        let digest = Sha256::digest(all.concat().as_bytes());
        let accounts = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { machine: machine.map(|sid| sid.to_string()), accounts })
    }
}

/// A SID that no other machine has.
pub(crate) fn random() -> Result<Sid, Failure> {
    let guid = state::random_guid()?;
    Ok(Settings { server_guid: guid, ..Settings::default() }.sid())
}

/// Keeps the SID in force in the account file, with the identifiers of accounts whose passwords
/// are `given` elsewhere. `is_new` is true if the server's identity was made just now.
///
/// A failure to keep them is a warning.
pub(crate) fn keep(
    config: &Config,
    settings: &Settings,
    given: impl FnOnce(&AccountFile) -> Vec<String>,
    is_new: bool,
) {
    let path = state::users_file_of(config);
    // A fault in the file is reported later, when the accounts are read, so here it is ignored.
    let Ok(file) = accounts::read(&path) else { return };
    if !path.parent().is_some_and(Path::is_dir) {
        return;
    }
    let given = given(&file);
    let mut wanted = settings.clone();
    apply(&mut wanted, &file);
    if is_new && file.header().machine.is_none() && file.entries().next().is_some() {
        tracing::warn!(target: "frevo::server", sid = %wanted.sid(),
            "the server's identity was lost, and its accounts have new SIDs: access lists that were \
             stored before name none of them; set sid in [server] to the earlier SID (docs/backup.md)");
    }
    if !change(&mut file.clone(), &wanted, &given) {
        return;
    }
    let attempt = || -> Result<(), Failure> {
        let _lock = secret_file::lock(&path)?;
        let mut file = accounts::read(&path)?;
        change(&mut file, &wanted, &given);
        secret_file::replace(&path, &file.to_text())
    };
    if let Err(failure) = attempt() {
        tracing::warn!(target: "frevo::server", %failure, sid = %wanted.sid(),
            "the machine's SID cannot be kept in the account file; set sid in [server], so that \
             access lists stay valid if the state directory is lost");
    }
}

/// Puts the SID and the accounts `given` into the file. Returns true if that changes it.
fn change(file: &mut AccountFile, wanted: &Settings, given: &[String]) -> bool {
    let sid = wanted.sid();
    let is_kept =
        file.header().machine == Some(sid) && file.header().is_samba == wanted.has_host_sids;
    if !is_kept {
        file.set_machine(sid, wanted.has_host_sids);
    }
    let mut is_changed = !is_kept;
    for name in given {
        if file.find(name).is_none() {
            is_changed |= file.add(accounts::entry_without_password(name)).is_ok();
        }
    }
    is_changed
}

/// The reason to doubt the SID in force: lists of a share name accounts of another machine.
pub(crate) fn foreign_lists(share: &str, vfs: &dyn Vfs, machine: Sid) -> Option<String> {
    let (name, sid) = first_foreign(vfs, machine)?;
    let (other, _) = sid.split_rid()?;
    let place = if name.is_empty() { String::from("the folder itself") } else { name };
    Some(format!(
        "share {share}: the access list of {place} names {sid}, an account of another machine; the \
         SID of this one is {machine}. If the files come from a server that Frevo replaces, set \
         sid = \"{other}\" in [server]; else no account here is meant by such lists"
    ))
}

fn first_foreign(vfs: &dyn Vfs, machine: Sid) -> Option<(String, Sid)> {
    let root = vfs.open(&Name::root(), &OpenHow::DIRECTORY).ok()?;
    let of = |list: Option<Vec<u8>>| foreign_sid(&list?, machine);
    if let Some(sid) = of(root.node.stored_security().ok()?) {
        return Some((String::new(), sid));
    }
    let mut directory = root.node.directory().ok()?;
    for _ in 0..ENTRIES_MAX {
        let name = directory.next_name().ok()??.to_owned();
        let opened = vfs.open(&Name::root().child(&name), &OpenHow::LOOK);
        let Ok(opened) = opened else { continue };
        if let Some(sid) = opened.node.stored_security().ok().and_then(of) {
            return Some((name, sid));
        }
    }
    None
}

/// A SID of another machine's or domain's account in a descriptor.
fn foreign_sid(descriptor: &[u8], machine: Sid) -> Option<Sid> {
    let descriptor = SecurityDescriptor::parse(descriptor).ok()?;
    let entries =
        descriptor.dacl.iter().flat_map(|list| &list.aces).filter_map(|entry| match &entry.body {
            AceBody::Plain { sid, .. } => Some(*sid),
            _ => None,
        });
    let mut sids = descriptor.owner.into_iter().chain(descriptor.group).chain(entries);
    sids.find(|sid| {
        let parts = sid.sub_authorities();
        sid.authority() == 5
            && parts.len() == 5
            && parts.first() == Some(&21)
            && sid.split_rid().is_some_and(|(of, _)| of != machine)
    })
}

/// True for the smb.conf of this host's Samba. A file in another place may come from another host,
/// of which this one knows nothing.
pub(crate) fn is_of_this_host(conf: &Path) -> bool {
    let Ok(conf) = conf.canonicalize() else { return false };
    SMB_CONFS.iter().any(|known| Path::new(known).canonicalize().is_ok_and(|known| known == conf))
}

/// The SID of the Samba server whose smb.conf is `conf`, if that server is the one of this host:
/// its program `net` tells it.
pub(crate) fn of_samba(conf: &Path) -> Option<MachineSid> {
    if !is_of_this_host(conf) {
        return None;
    }
    told_sid(&net(conf, "getlocalsid")?)
}

/// The SID of the domain that this host's Samba, whose smb.conf is `conf`, is a member of.
pub(crate) fn of_domain(conf: &Path, domain: &str) -> Option<MachineSid> {
    if !is_of_this_host(conf) {
        return None;
    }
    let told = net(conf, "getdomainsid")?;
    let named = format!("domain {} ", domain.to_lowercase());
    told_sid(told.lines().find(|line| line.to_lowercase().contains(&named))?)
}

/// The output of Samba's `net`.
fn net(conf: &Path, command: &str) -> Option<String> {
    let told = Command::new("net").arg("-s").arg(conf).arg(command).output().ok()?;
    String::from_utf8(told.stdout).ok()
}

/// The SID in `SID for domain BOX is: S-1-5-21-1-2-3`.
fn told_sid(told: &str) -> Option<MachineSid> {
    told.lines().find_map(|line| line.rsplit(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl};

    use super::*;

    #[test]
    fn accounts_are_told_by_sid_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let read = |configured, names: &[&str]| {
            let mut file = AccountFile::default();
            file.set_machine("S-1-5-21-1-2-3".parse().unwrap(), false);
            for name in names {
                file.add(accounts::entry_without_password(name)).unwrap();
            }
            secret_file::replace(&path, &file.to_text()).unwrap();
            AccountSids::read(configured, &path).unwrap()
        };
        let one = read(None, &["ann", "bob"]);
        assert_eq!(one.machine.as_deref(), Some("S-1-5-21-1-2-3"));
        assert_eq!(read(None, &["Ann", "bob"]), one);
        assert_ne!(read(None, &["bob", "ann"]).accounts, one.accounts, "other numbers");
        let other = read("S-1-5-21-1-2-4".parse().ok(), &["ann", "bob"]);
        assert_eq!(other.machine.as_deref(), Some("S-1-5-21-1-2-4"));
        assert_eq!(other.accounts, one.accounts);
        assert_eq!(read(None, &[]).machine, None, "a list can name no account");
        std::fs::write(&path, "ann:damaged").unwrap();
        assert_eq!(AccountSids::read(None, &path), None);
    }

    #[test]
    fn what_net_says_is_read() {
        let sid = "S-1-5-21-3004859244-1309964605-2891807487";
        let told = format!("SID for domain REFERENCE is: {sid}\n");
        assert_eq!(told_sid(&told).unwrap().to_string(), sid);
        assert_eq!(told_sid("Can't fetch domain SID for name: BOX\n"), None);
        assert_eq!(of_samba(Path::new("/tmp/smb.conf")), None, "of another server");
        for conf in ["-", "smb.conf", "/etc/hostname", "/no/etc/samba/smb.conf"] {
            assert!(!is_of_this_host(Path::new(conf)), "{conf}");
        }
        for conf in SMB_CONFS.map(Path::new) {
            assert_eq!(is_of_this_host(conf), conf.exists());
        }
    }

    #[test]
    fn accounts_of_other_machines_are_seen() {
        let sid = |text: &str| text.parse::<Sid>().unwrap();
        let machine = sid("S-1-5-21-1-2-3");
        let list = |who: Sid| {
            let mut bytes = Vec::new();
            SecurityDescriptor {
                owner: Some(sid("S-1-5-21-1-2-3-1000")),
                group: Some(Sid::unix_group(7)),
                dacl: Some(Acl::new(vec![Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, who)])),
                ..SecurityDescriptor::default()
            }
            .encode(&mut bytes)
            .unwrap();
            foreign_sid(&bytes, machine)
        };
        for own in ["S-1-5-21-1-2-3-1001", "S-1-5-32-544", "S-1-1-0", "S-1-22-1-7"] {
            assert_eq!(list(sid(own)), None, "{own}");
        }
        let other = sid("S-1-5-21-1-2-4-1001");
        assert_eq!(list(other), Some(other));
    }
}
