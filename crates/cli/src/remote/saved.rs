//! Servers whose password is saved: `login`, `logout`, and the lookup of the other commands.
//!
//! A file has a line of JSON for each server and user. It holds NT hashes, with which one can log
//! on as with the password, so only its owner may be able to read it. Where a Secret Service runs,
//! the hash is kept there instead, and the line says so.

use std::cell::RefCell;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use frevo_auth::{NtHash, Zeroizing};
use frevo_client::ServerName;
use serde_json::{Value, json};

use super::connection_options::Connection;
use super::location::{Url, is_same_server};
use super::output::line;
use super::secret_service::SecretService;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::{passwords, secret_file};

/// Saved servers, at most.
const MOST: usize = 1_000;

/// A logon that `frevo login` has saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The server as URLs name it, with the port unless it is 445.
    server: String,
    pub(crate) user: String,
    /// True if the logon went over QUIC.
    over_quic: bool,
    secret: SavedSecret,
}

/// Where `login` keeps passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StoreName {
    /// A file that only its owner can read
    File,
    /// The Secret Service of the desktop, over D-Bus
    SecretService,
}

/// The place of a saved password.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SavedSecret {
    /// The NT hash of the password, 32 hexadecimal digits, in the file.
    Hash(Zeroizing<String>),
    /// The Secret Service has the hash.
    SecretService,
}

/// The word in the file for a logon over QUIC.
const QUIC: &str = "quic";

/// The word in the file for a password that the Secret Service has.
const SECRET_SERVICE: &str = "secret-service";

thread_local! {
    /// Hashes that the Secret Service told this command, by server and user.
    static TOLD: RefCell<Vec<(String, String, Zeroizing<String>)>> = RefCell::default();
}

impl Saved {
    fn is_of(&self, url: &Url, user: Option<&str>) -> bool {
        self.server.parse().is_ok_and(|server| is_same_server(&server, &url.server))
            && user.is_none_or(|user| user.eq_ignore_ascii_case(&self.user))
    }

    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let member = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let (server, user) = (member("server")?, member("user")?);
        let over_quic = member("transport").as_deref() == Some(QUIC);
        if member("store").as_deref() == Some(SECRET_SERVICE) {
            let secret = SavedSecret::SecretService;
            return Some(Self { server, user, over_quic, secret });
        }
        let hash = Zeroizing::new(member("nt_hash")?);
        NtHash::from_hex(&hash)?;
        Some(Self { server, user, over_quic, secret: SavedSecret::Hash(hash) })
    }

    fn to_json(&self) -> Value {
        let Self { server, user, over_quic, secret } = self;
        let mut object = match secret {
            SavedSecret::Hash(hash) => {
                json!({ "server": server, "user": user, "nt_hash": hash.as_str() })
            }
            SavedSecret::SecretService => {
                json!({ "server": server, "user": user, "store": SECRET_SERVICE })
            }
        };
        if *over_quic {
            object["transport"] = json!(QUIC);
        }
        object
    }

    /// The URL of the server.
    fn url(&self) -> String {
        let Self { server, user, over_quic, .. } = self;
        let scheme = if *over_quic { "smb+quic" } else { "smb" };
        format!("{scheme}://{user}@{server}")
    }

    /// The NT hash of the password, 32 hexadecimal digits.
    pub(crate) fn hash(&self) -> Result<Zeroizing<String>, Failure> {
        let Self { server, user, secret, .. } = self;
        if let SavedSecret::Hash(hash) = secret {
            return Ok(hash.clone());
        }
        let told = TOLD.with_borrow(|told| {
            let mut all = told.iter();
            all.find(|(s, u, _)| s == server && u == user).map(|(.., hash)| hash.clone())
        });
        if let Some(hash) = told {
            return Ok(hash);
        }
        let found = SecretService::open().and_then(|mut service| service.find(server, user));
        let hash = found.map_err(|error| no_service(self, &error))?.ok_or_else(|| {
            let text = format!(
                "the Secret Service has no password of {user} on {server} any more; save it again \
                 with frevo login {}",
                self.url()
            );
            Failure::new(Exit::Auth, text)
        })?;
        TOLD.with_borrow_mut(|told| told.push((server.clone(), user.clone(), hash.clone())));
        Ok(hash)
    }
}

/// The file of saved servers. None without a home.
fn file() -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|at| at.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("frevo").join("servers"))
}

fn no_service(saved: &Saved, error: &io::Error) -> Failure {
    let Saved { server, user, .. } = saved;
    let text = format!(
        "the password of {user} on {server} is in the Secret Service, which does not give it: \
         {error}; unlock the keyring, or save the password in a file: \
         frevo login --store file {}",
        saved.url()
    );
    Failure::new(Exit::Auth, text)
}

fn no_home() -> Failure {
    Failure::new(Exit::Failed, "HOME is not set, so there is no place for saved passwords")
}

/// Returns all saved logons, sorted by server.
fn all() -> Result<Vec<Saved>, Failure> {
    let Some(path) = file() else { return Ok(Vec::new()) };
    let Some(text) = secret_file::read(&path)? else { return Ok(Vec::new()) };
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    let saved = lines.take(MOST).map(|(at, text)| {
        Saved::read(text).ok_or_else(|| {
            let text = format!(
                "{}, line {}: this is not a saved server; remove the line",
                path.display(),
                at + 1
            );
            Failure::new(Exit::Auth, text)
        })
    });
    saved.collect()
}

/// The saved logon to the server of `url`: of `user`, or of the user saved last.
pub(crate) fn find(url: &Url, user: Option<&str>) -> Result<Option<Saved>, Failure> {
    Ok(all()?.into_iter().rev().find(|saved| saved.is_of(url, user)))
}

/// Makes the folder of saved servers, which no other user can look into. Versions before 0.2 made one
/// for which the umask decided.
fn make_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let there = std::fs::symlink_metadata(folder)?;
    let is_own = there.is_dir() && there.uid() == rustix::process::geteuid().as_raw();
    if is_own && there.mode() & 0o077 != 0 {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Changes the file while no other process does.
fn change(edit: impl FnOnce(&mut Vec<Saved>)) -> Done {
    let path = file().ok_or_else(no_home)?;
    let folder = path.parent().unwrap_or(&path);
    make_folder(folder).map_err(Failure::failed(format!("cannot create {}", folder.display())))?;
    let _lock = secret_file::lock(&path)?;
    let mut saved = all()?;
    edit(&mut saved);
    if saved.len() > MOST {
        let text = format!("{MOST} servers are saved already; frevo logout removes one");
        return Err(Failure::new(Exit::Failed, text));
    }
    let mut text = Zeroizing::new(String::new());
    for one in &saved {
        text.push_str(&Zeroizing::new(one.to_json().to_string()));
        text.push('\n');
    }
    secret_file::replace(&path, &text)
}

/// Logs on to a server and saves the password, or lists the saved servers.
pub(crate) async fn login(
    connection: &Connection,
    url: Option<&Url>,
    store: Option<StoreName>,
) -> Done {
    let Some(url) = url else { return list(connection.json) };
    if connection.credentials.is_some() {
        let text = "--credentials names a file that has the password already; leave it out to save \
                    the password with frevo login";
        return Err(Failure::new(Exit::Usage, text));
    }
    let user = connection.user_of(url)?;
    let password = match connection.given_password(&user, url)? {
        Some(password) => password,
        None => passwords::prompt(&format!("Password of {user} on {}: ", url.server))?,
    };
    let hash = if connection.nt_hash {
        let hash = NtHash::from_hex(&password).map(|hash| hash.to_hex());
        hash.ok_or_else(|| {
            Failure::new(Exit::Auth, "an NT hash has 32 digits from 0 to 9 and a to f")
        })?
    } else {
        NtHash::from_password(&password).to_hex()
    };
    // The logon comes before the storing, so that a wrong password is not saved.
    connection.keep_password(&user, url, password);
    connection.log_on(url).await?;
    let server = saved_name(&url.server);
    let secret = keep(&server, &user, hash, store)?;
    let place = match secret {
        SavedSecret::Hash(_) => "",
        SavedSecret::SecretService => " in the Secret Service",
    };
    let one = Saved { server, user: user.clone(), over_quic: url.over_quic, secret };
    let saved_url = one.url();
    change(|saved| {
        saved.retain(|other| !other.is_of(url, Some(&user)));
        saved.push(one);
    })?;
    tell(format_args!(
        "the password of {user} on {} is saved{place}; frevo logout {saved_url} removes it",
        url.server
    ));
    Ok(())
}

/// Returns the name under which a server is saved: without a port that is the usual one.
fn saved_name(server: &ServerName) -> String {
    let bare = ServerName::new(&*server.host);
    let is_usual = server.tcp_port() == bare.tcp_port();
    if is_usual { bare.to_string() } else { server.to_string() }
}

/// Keeps a hash in the store that is asked for: without one in the Secret Service, if that answers.
fn keep(
    server: &str,
    user: &str,
    hash: Zeroizing<String>,
    store: Option<StoreName>,
) -> Result<SavedSecret, Failure> {
    if store == Some(StoreName::File) {
        return Ok(SavedSecret::Hash(hash));
    }
    let stored = match SecretService::open() {
        Ok(mut service) => service.store(server, user, &hash),
        Err(error) if store.is_none() => {
            tracing::debug!(%error, "no Secret Service answers; the password goes to the file");
            return Ok(SavedSecret::Hash(hash));
        }
        Err(error) => Err(error),
    };
    match stored {
        Ok(()) => Ok(SavedSecret::SecretService),
        Err(error) if store.is_none() && error.kind() == io::ErrorKind::NotFound => {
            Ok(SavedSecret::Hash(hash))
        }
        Err(error) => {
            let text = format!(
                "the Secret Service does not take the password: {error}; use --store file to save \
                 it in a file"
            );
            Err(Failure::new(Exit::Failed, text))
        }
    }
}

/// The URLs of the saved servers; none when the file cannot be read.
pub(crate) fn urls() -> Vec<String> {
    all().unwrap_or_default().iter().map(Saved::url).collect()
}

fn list(json: bool) -> Done {
    for one in all()? {
        let shown = if json {
            let Saved { server, user, secret, .. } = &one;
            let store = match secret {
                SavedSecret::Hash(_) => "file",
                SavedSecret::SecretService => SECRET_SERVICE,
            };
            line(json!({ "server": server, "user": user, "store": store }))
        } else {
            line(one.url())
        };
        if !shown {
            break;
        }
    }
    Ok(())
}

/// Removes saved passwords of a server: of the user of the URL, or of all users.
pub(crate) fn logout(url: &Url) -> Done {
    let user = url.user.as_deref();
    let saved: Vec<Saved> = all()?.into_iter().filter(|one| one.is_of(url, user)).collect();
    if saved.is_empty() {
        let text = format!("no password is saved for {url}; frevo login lists the saved servers");
        return Err(Failure::new(Exit::NotFound, text));
    }
    for one in saved.iter().filter(|one| one.secret == SavedSecret::SecretService) {
        let removed =
            SecretService::open().and_then(|mut service| service.remove(&one.server, &one.user));
        removed.map_err(|error| {
            let Saved { server, user, .. } = one;
            let text = format!(
                "the password of {user} on {server} cannot be removed from the Secret Service: \
                 {error}; unlock the keyring and try again"
            );
            Failure::new(Exit::Failed, text)
        })?;
    }
    change(|saved| saved.retain(|one| !one.is_of(url, user)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_server_or_a_fault() {
        let hash = "8846F7EAEE8FB117AD06BDD830B7586C";
        let text = json!({ "server": "Box:4450", "user": "ann", "nt_hash": hash }).to_string();
        let saved = Saved::read(&text).unwrap();
        let of = |url: &str, user| saved.is_of(&url.parse().unwrap(), user);
        assert!(of("smb://box:4450/s", None) && of("smb://BOX:4450", Some("Ann")));
        assert!(!of("smb://box/s", None) && !of("smb://box:4450", Some("bob")));
        assert_eq!(Saved::read(&saved.to_json().to_string()).as_ref(), Some(&saved));
        for (server, url, is_own) in [
            ("box", "smb://Box:445/s", true),
            ("Box:445", "smb://box/s", true),
            ("[::1]", "smb://[::1]:445", true),
            ("box", "smb://box:446", false),
            ("box:446", "smb://box", false),
        ] {
            let saved = Saved { server: server.to_owned(), ..saved.clone() };
            assert_eq!(saved.is_of(&url.parse().unwrap(), None), is_own, "{server}, {url}");
        }
        let kept = |server: &str| saved_name(&server.parse().unwrap());
        assert_eq!(
            [kept("Box:445"), kept("[::1]:445"), kept("box:446")],
            ["Box", "[::1]", "box:446"]
        );
        let there = json!({ "server": "box", "user": "ann", "store": SECRET_SERVICE }).to_string();
        let there = Saved::read(&there).unwrap();
        assert_eq!(there.secret, SavedSecret::SecretService);
        assert_eq!(Saved::read(&there.to_json().to_string()), Some(there));
        for wrong in ["", "{}", "[1]", &text.replace("8846", "zz46"), &text.replace("ann", "\"")] {
            assert_eq!(Saved::read(wrong), None, "{wrong}");
        }
    }
}
