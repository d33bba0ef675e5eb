//! `frevo quic`: a certificate that signs itself, to try SMB over QUIC.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use frevo_config::Config;
use frevo_net::quic::{Fingerprint, Identity, Wanted, issue};
use frevo_net::socket;

use crate::console::{print, print_text};
use crate::exit::{Done, Exit, Failure, is_json};
use crate::secret_file::Owner;
use crate::{accounts, config_checks, secret_file, state};

/// The file of the certificate, and that of its key.
const FILES: [&str; 2] = ["quic.crt", "quic.key"];

/// Days for which a certificate is valid that nobody gives a time.
const DAYS: u32 = 90;

/// `frevo quic`
#[derive(Debug, Args)]
pub(crate) struct Quic {
    /// Names and addresses by which clients reach the server [default: the name and the
    /// addresses of this host]
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,

    /// Folder for quic.crt and quic.key [default: the state directory, where `frevo serve
    /// --quic` looks for them]
    #[arg(long, short = 'o', value_name = "DIR", value_hint = ValueHint::DirPath,
        conflicts_with_all = ["state_dir", "config"])]
    out: Option<PathBuf>,

    /// Put both files where a server with this configuration looks for them
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    /// Put both files into this state directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "config")]
    state_dir: Option<PathBuf>,

    /// Days for which the certificate is valid [default: 90]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: Option<u32>,

    /// Replace a certificate that is there; clients that pin it need the new fingerprint
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Quic {
    /// The files of the certificate and of its key.
    fn files(&self) -> Result<[PathBuf; 2], Failure> {
        if let Some(folder) = &self.out {
            return Ok(FILES.map(|name| folder.join(name)));
        }
        let mut config = match &self.config {
            Some(file) => config_checks::read(file)?,
            None => Config::default(),
        };
        if self.state_dir.is_some() {
            config.server.state_dir.clone_from(&self.state_dir);
        }
        let files = config_checks::quic_files(&config);
        let dir = state::dir_of(&config);
        if files.iter().any(|file| file.parent() == Some(&dir)) {
            state::make_dir(&dir)?;
        }
        Ok(files)
    }
}

pub(crate) fn run(arguments: &Quic) -> Done {
    let [certificate, key] = arguments.files()?;
    if !arguments.force && (certificate.exists() || key.exists()) {
        return show(&certificate, &key, arguments);
    }
    let hosts = if arguments.hosts.is_empty() { own_hosts() } else { arguments.hosts.clone() };
    if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
        let text = format!("`{host}` is not the name or the address of a host");
        return Err(Failure::new(Exit::Usage, text));
    }
    let wanted = Wanted {
        common_name: hosts.first().cloned().unwrap_or_default(),
        hosts: hosts.clone(),
        is_authority: false,
        // Clocks of clients may be a little behind.
        since: SystemTime::now() - Duration::from_secs(3_600),
        lasts: lifetime(arguments.days.unwrap_or(DAYS)),
    };
    let failed = |error: frevo_net::quic::BadCertificate| {
        Failure::new(Exit::Failed, format!("cannot make a certificate: {error}"))
    };
    let issued = issue(&wanted, None).map_err(failed)?;
    // The files belong to the owner of their directory: the user of the server.
    let owner = |file: &Path| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let metadata = fs::metadata(folder)
            .map_err(Failure::failed(format!("cannot use {}", folder.display())))?;
        Ok::<_, Failure>(Some(Owner::of(&metadata)))
    };
    secret_file::replace_for(&key, issued.key.as_bytes(), owner(&key)?)?;
    secret_file::replace_for(&certificate, issued.certificate.as_bytes(), owner(&certificate)?)?;
    // Clients may have the certificate.
    fs::set_permissions(&certificate, fs::Permissions::from_mode(0o644))
        .map_err(Failure::failed(format!("cannot write {}", certificate.display())))?;
    tell(&certificate, &key, &hosts, issued.fingerprint, true)
}

fn lifetime(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}

/// Tells of a certificate that is there already, unless another one is wanted.
fn show(certificate: &Path, key: &Path, arguments: &Quic) -> Done {
    let shown = certificate.display();
    let read = |path: &Path| {
        fs::read(path).map_err(Failure::failed(format!("cannot read {}", path.display())))
    };
    let identity = Identity::from_pem(&read(certificate)?, &read(key)?).map_err(|error| {
        Failure::new(Exit::Config, format!("{shown}: {error}; --force replaces it"))
    })?;
    let ended = identity.ends().is_some_and(|ends| ends < SystemTime::now());
    let other_host = arguments.hosts.iter().find(|host| !identity.is_for(host));
    let other_time = arguments.days.filter(|days| identity.lifetime() != Some(lifetime(*days)));
    let why = match (ended, other_host, other_time) {
        (true, ..) => String::from("has ended"),
        (_, Some(host), _) => format!("is there already, and is not for {host}"),
        (.., Some(days)) => format!("is there already, and is not for {days} days"),
        (false, None, None) => {
            let own =
                if arguments.hosts.is_empty() { own_hosts() } else { arguments.hosts.clone() };
            let hosts: Vec<_> = own.into_iter().filter(|host| identity.is_for(host)).collect();
            return tell(certificate, key, &hosts, identity.fingerprint(), false);
        }
    };
    Err(Failure::new(Exit::Failed, format!("{shown} {why}; --force replaces it")))
}

/// Tells of the certificate; `is_new` is true if it was made now.
fn tell(
    certificate: &Path,
    key: &Path,
    hosts: &[String],
    fingerprint: Fingerprint,
    is_new: bool,
) -> Done {
    // The server may start in another folder.
    let [certificate, key] =
        [certificate, key].map(|file| std::path::absolute(file).unwrap_or_else(|_| file.into()));
    if is_json() {
        let object = serde_json::json!({
            "certificate": certificate.display().to_string(),
            "key": key.display().to_string(),
            "fingerprint": fingerprint.to_string(),
            "hosts": hosts, "changed": is_new,
        });
        return print(format!("{object}\n").as_bytes());
    }
    let (certificate, key) = (certificate.display(), key.display());
    let host = hosts.first().map_or("HOST", |host| host.as_str());
    let url = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    print_text(&format!(
        "certificate  {certificate}\n\
         key          {key}\n\
         fingerprint  {fingerprint}\n\
         hosts        {}\n\
         \n\
         server, in its configuration:\n\
         \x20 [quic]\n\
         \x20 listen = [\":443\"]\n\
         \x20 certificate = \"{certificate}\"\n\
         \x20 key = \"{key}\"\n\
         \n\
         client: frevo ls smb+quic://{url}/SHARE --quic-pin {fingerprint}\n",
        hosts.join(", ")
    ))
}

/// The name and the addresses of this host.
fn own_hosts() -> Vec<String> {
    let mut hosts = vec![accounts::host_name().as_str().to_lowercase()];
    let interfaces = socket::interfaces().unwrap_or_default();
    let addresses = interfaces.iter().filter(|one| !one.loopback).flat_map(|one| &one.addresses);
    let is_local = |address: &std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    hosts.extend(addresses.filter(|address| !is_local(address)).map(ToString::to_string));
    hosts.extend(["localhost", "127.0.0.1", "::1"].map(String::from));
    hosts
}

/// True for a name or an address that a certificate can have.
fn is_host(text: &str) -> bool {
    let is_name = |text: &str| {
        let mut bytes = text.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*'))
    };
    !text.is_empty() && (text.parse::<std::net::IpAddr>().is_ok() || is_name(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(folder: &Path) -> Quic {
        Quic {
            hosts: vec![String::from("nas.example"), String::from("2001:db8::1")],
            out: Some(folder.to_owned()),
            config: None,
            state_dir: None,
            days: Some(30),
            force: false,
            json: false,
        }
    }

    #[test]
    fn a_certificate_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = || wanted(folder.path());
        let read = || fs::read(folder.path().join("quic.crt")).unwrap();
        run(&arguments()).unwrap();
        let first = read();
        let key = fs::read(folder.path().join("quic.key")).unwrap();
        let ends = Identity::from_pem(&first, &key).unwrap().ends().unwrap();
        let left = ends.duration_since(SystemTime::now()).unwrap();
        assert_eq!(left.as_secs() / 86_400, 29);
        run(&arguments()).unwrap();
        run(&Quic { hosts: Vec::new(), days: None, ..arguments() }).unwrap();
        let other = Quic { hosts: vec![String::from("other.example")], ..arguments() };
        let told = run(&other).unwrap_err().to_string();
        assert!(told.contains("is not for other.example; --force replaces it"), "{told}");
        let told = run(&Quic { days: Some(31), ..arguments() }).unwrap_err().to_string();
        assert!(told.contains("is not for 31 days"), "{told}");
        assert_eq!(read(), first);
        run(&Quic { force: true, ..other }).unwrap();
        assert_ne!(read(), first);
    }

    /// The files are made where the server looks for them.
    #[test]
    fn a_configuration_and_a_state_directory_say_where() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let anywhere = || Quic { out: None, ..wanted(folder.path()) };
        run(&Quic { state_dir: Some(at("state")), ..anywhere() }).unwrap();
        assert!(at("state/quic.crt").exists() && at("state/quic.key").exists());
        let section = format!(
            "[quic]\nlisten = [\":0\"]\ncertificate = {:?}\nkey = {:?}\n",
            at("own.crt"),
            at("own.key")
        );
        let state = format!("[server]\nstate_dir = {:?}\n", at("other"));
        for (text, made) in
            [(&*section, ["own.crt", "own.key"]), ("", ["other/quic.crt", "other/quic.key"])]
        {
            fs::write(at("frevo.toml"), format!("{state}{text}")).unwrap();
            run(&Quic { config: Some(at("frevo.toml")), ..anywhere() }).unwrap();
            assert!(made.iter().all(|name| at(name).exists()), "{made:?}");
        }
    }

    #[test]
    fn a_host_has_a_name_or_an_address() {
        for good in ["nas", "nas.example", "192.0.2.1", "2001:db8::1", "*.example"] {
            assert!(is_host(good), "{good}");
        }
        for wrong in ["", "nas/x", "smb://nas", "a b"] {
            assert!(!is_host(wrong), "{wrong}");
        }
    }
}
