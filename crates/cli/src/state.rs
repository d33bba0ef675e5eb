//! The state directory: what outlives the process.

use std::env;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use frevo_config::Config;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;

use crate::exit::{Exit, Failure};
use crate::secret_file;

/// The account file in a state directory.
pub(crate) const USERS: &str = "users";
/// The server's identity in a state directory.
const SERVER_GUID: &str = "server-guid";

/// The file of the results of scans for viruses in a state directory.
pub(crate) const SCAN_RESULTS: &str = "scan-results";

/// The file of persistent handles in a state directory.
pub(crate) const PERSISTENT_OPENS: &str = "persistent-opens";

/// The file of durable handles that a stopped server leaves to the next.
pub(crate) const HANDED_OVER_OPENS: &str = "handed-over-opens";

/// The file of SIDs that domains have told, in a state directory.
pub(crate) const DOMAIN_SIDS: &str = "domain-sids.json";

/// The file of the shadow copies of MS-FSRVP, in a state directory.
pub(crate) const SHADOW_COPIES: &str = "shadow-copies";

/// The folder of the journals of brakes, in a state directory.
const BRAKE_JOURNALS: &str = "brake";

/// The file of the snapshots that administrators keep, in a state directory.
pub(crate) const KEPT_SNAPSHOTS: &str = "kept-snapshots";

/// Where the configuration of a system's server is.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/frevo/frevo.toml";

/// The admin socket in a state or runtime directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

/// Where a server without a state directory has its admin socket: in the directory of this
/// login, if there is one.
pub(crate) fn session_socket() -> Option<PathBuf> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute())?;
    Some(folder.join("frevo").join(ADMIN_SOCKET))
}

/// Where state is kept by default.
pub(crate) fn default_dir() -> PathBuf {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    // systemd sets STATE_DIRECTORY if the unit file has StateDirectory=.
    if let Some(state) = folder("STATE_DIRECTORY") {
        return state;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/frevo");
    }
    if let Some(state) = folder("XDG_STATE_HOME") {
        return state.join("frevo");
    }
    folder("HOME")
        .map_or_else(|| PathBuf::from("/var/lib/frevo"), |home| home.join(".local/state/frevo"))
}

/// The state directory of a configuration.
pub(crate) fn dir_of(config: &Config) -> PathBuf {
    config.server.state_dir.clone().unwrap_or_else(default_dir)
}

/// The journal of the brake of a share. Two names that differ in case only have one.
pub(crate) fn brake_journal_of(config: &Config, share: &str) -> PathBuf {
    let mut file = String::new();
    for c in fold_name(share).chars() {
        match c {
            '_' | '-' => file.push(c),
            c if c.is_alphanumeric() => file.push(c),
            // Writing to a String cannot fail.
            c => _ = write!(file, "%{:x}", u32::from(c)),
        }
    }
    dir_of(config).join(BRAKE_JOURNALS).join(format!("{file}.jsonl"))
}

/// The account file of a configuration.
pub(crate) fn users_file_of(config: &Config) -> PathBuf {
    config.server.users_file.clone().unwrap_or_else(|| users_file_in(&dir_of(config)))
}

/// The account file in a state directory.
pub(crate) fn users_file_in(dir: &Path) -> PathBuf {
    dir.join(USERS)
}

/// Makes a state directory that only its owner can look into, unless it is there.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(Failure::failed(format!("cannot create the state directory {}", dir.display())))
}

/// True if the server has an identity.
pub(crate) fn has_server_guid(dir: &Path) -> bool {
    dir.join(SERVER_GUID).exists()
}

/// The server's identity: drawn once, then the same for ever, because clients
/// tell servers apart by it.
pub(crate) fn server_guid(dir: &Path) -> Result<Guid, Failure> {
    let path = dir.join(SERVER_GUID);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse_guid(text.trim()).ok_or_else(|| {
            let path = path.display();
            Failure::new(
                Exit::Failed,
                format!(
                    "{path} is damaged: it must hold 32 hexadecimal digits; remove it, and the \
                     server gets a new identity"
                ),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let guid = random_guid()?;
            make_dir(dir)?;
            secret_file::replace(&path, &format!("{}\n", hex(&guid)))?;
            Ok(guid)
        }
        Err(error) => Err(Failure::failed(format!("cannot read {}", path.display()))(error)),
    }
}

/// An identity for this run alone.
pub(crate) fn random_guid() -> Result<Guid, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(Failure::failed("cannot get random bytes from the system"))?;
    // RFC 9562, 5.4: these bits mark the GUID as a random one.
    bytes[7] = bytes[7] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    Ok(Guid(bytes))
}

fn hex(guid: &Guid) -> String {
    guid.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_guid(text: &str) -> Option<Guid> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(|value| Guid(value.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stays() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/state");
        let guid = server_guid(&dir).unwrap();
        assert_ne!(guid, Guid::default());
        assert_eq!(server_guid(&dir).unwrap(), guid);
        assert_ne!(server_guid(&folder.path().join("b")).unwrap(), guid);
        std::fs::write(dir.join(SERVER_GUID), "nonsense").unwrap();
        assert!(server_guid(&dir).is_err());
    }
}
