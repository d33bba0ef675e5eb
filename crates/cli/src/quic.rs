//! `frevo quic`: a certificate that signs itself, to try SMB over QUIC.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use frevo_config::Config;
use frevo_net::quic::{Fingerprint, Identity, Wanted, issue};
use frevo_net::socket;

use crate::console::print_text;
use crate::exit::{Done, Exit, Failure};
use crate::secret_file::Owner;
use crate::{accounts, secret_file, state};

/// The file of the certificate, and that of its key.
const FILES: [&str; 2] = ["quic.crt", "quic.key"];

/// `frevo quic`
#[derive(Debug, Args)]
pub(crate) struct Quic {
    /// Names and addresses by which clients reach the server [default: the name and the
    /// addresses of this host]
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,

    /// Folder for quic.crt and quic.key [default: the state directory, where `frevo serve
    /// --quic` looks for them]
    #[arg(long, short = 'o', value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// Days for which the certificate is valid
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,

    /// Replace a certificate that is there; clients that pin it need the new fingerprint
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Quic) -> Done {
    let folder = arguments.out.clone().unwrap_or_else(|| state::dir_of(&Config::default()));
    if arguments.out.is_none() {
        state::make_dir(&folder)?;
    }
    let [certificate, key] = FILES.map(|name| folder.join(name));
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
        lasts: Duration::from_secs(u64::from(arguments.days) * 86_400),
    };
    let failed = |error: frevo_net::quic::BadCertificate| {
        Failure::new(Exit::Failed, format!("cannot make a certificate: {error}"))
    };
    let issued = issue(&wanted, None).map_err(failed)?;
    let metadata = fs::metadata(&folder)
        .map_err(Failure::failed(format!("cannot use {}", folder.display())))?;
    // The files belong to the owner of the directory: the user of the server.
    let owner = Some(Owner::of(&metadata));
    secret_file::replace_for(&key, issued.key.as_bytes(), owner)?;
    secret_file::replace_for(&certificate, issued.certificate.as_bytes(), owner)?;
    // Clients may have the certificate.
    fs::set_permissions(&certificate, fs::Permissions::from_mode(0o644))
        .map_err(Failure::failed(format!("cannot write {}", certificate.display())))?;
    tell(&certificate, &key, &hosts, issued.fingerprint)
}

/// Tells of a certificate that is there already.
fn show(certificate: &Path, key: &Path, arguments: &Quic) -> Done {
    let shown = certificate.display();
    if !arguments.hosts.is_empty() {
        let text = format!("{shown} is there already; --force replaces it");
        return Err(Failure::new(Exit::Failed, text));
    }
    let read = |path: &Path| {
        fs::read(path).map_err(Failure::failed(format!("cannot read {}", path.display())))
    };
    let identity = Identity::from_pem(&read(certificate)?, &read(key)?).map_err(|error| {
        Failure::new(Exit::Config, format!("{shown}: {error}; --force replaces it"))
    })?;
    if identity.ends().is_some_and(|ends| ends < SystemTime::now()) {
        let text = format!("{shown} has ended; --force replaces it");
        return Err(Failure::new(Exit::Failed, text));
    }
    tell(certificate, key, &own_hosts(), identity.fingerprint())
}

fn tell(certificate: &Path, key: &Path, hosts: &[String], fingerprint: Fingerprint) -> Done {
    let (certificate, key) = (certificate.display(), key.display());
    let host = hosts.first().map_or("HOST", |host| host.as_str());
    let url = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    print_text(&format!(
        "certificate  {certificate}\n\
         key          {key}\n\
         fingerprint  {fingerprint}\n\
         \n\
         server: frevo serve --quic :443 ..., or in its configuration\n\
         \x20 [quic]\n\
         \x20 listen = [\":443\"]\n\
         \x20 certificate = \"{certificate}\"\n\
         \x20 key = \"{key}\"\n\
         \n\
         client: frevo ls smb+quic://{url}/SHARE --quic-pin {fingerprint}\n"
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

    #[test]
    fn a_certificate_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = |force| Quic {
            hosts: vec![String::from("nas.example"), String::from("2001:db8::1")],
            out: Some(folder.path().to_owned()),
            days: 30,
            force,
        };
        let read = || fs::read(folder.path().join("quic.crt")).unwrap();
        run(&arguments(false)).unwrap();
        let first = read();
        let key = fs::read(folder.path().join("quic.key")).unwrap();
        let ends = Identity::from_pem(&first, &key).unwrap().ends().unwrap();
        let left = ends.duration_since(SystemTime::now()).unwrap();
        assert_eq!(left.as_secs() / 86_400, 29);
        assert!(run(&arguments(false)).is_err(), "the names may be others");
        run(&Quic { hosts: Vec::new(), ..arguments(false) }).unwrap();
        assert_eq!(read(), first);
        run(&arguments(true)).unwrap();
        assert_ne!(read(), first);
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
