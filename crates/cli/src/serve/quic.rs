//! SMB over QUIC: its sockets, and certificates that are read again when their files change.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use frevo_config::{Config, Listen};
use frevo_net::quic::{AccessList, Certificates, Clients, Identity, Listener, Renewal, ServerTls};
use frevo_net::transport::Transport;

use super::keytab_watch::{Stamp, stamp};
use super::listen::{addresses_of, everywhere, is_without_ipv6};
use super::plan::Plan;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::{bounded_input, config_checks, secret_file, state};

/// The largest file of certificates, bytes.
const CERTIFICATES_BYTES: u64 = 4 << 20;
/// The time before the end of a certificate from which on the log tells of it.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// Time between two such lines.
const WARN_AGAIN: Duration = Duration::from_secs(86_400);
/// The bits of the longest RSA key without a warning.
const RSA_BITS: usize = 2_048;

/// The files with the certificates of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    /// The certificate of the server.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The authorities of clients.
    authorities: Option<PathBuf>,
}

impl Files {
    /// Returns the files of a configuration. None if it has no QUIC.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        config.quic.is_on().then(|| Self::named(config))
    }

    /// Returns the files that a configuration names, or those of the state directory.
    pub(crate) fn named(config: &Config) -> Self {
        let section = &config.quic;
        let [certificate, key] = config_checks::quic_files(config);
        Self { certificate, key, authorities: section.client_ca.clone() }
    }

    /// Returns all of them.
    pub(crate) fn all(self) -> impl Iterator<Item = PathBuf> {
        [self.certificate, self.key].into_iter().chain(self.authorities)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.clone().all().map(|file| stamp(&file)).collect()
    }
}

/// The end of a certificate.
pub(crate) struct Outlook {
    /// None if its date cannot be read.
    left: Option<Duration>,
    warn_before: Duration,
}

impl Outlook {
    /// Looks at a certificate now.
    pub(crate) fn of(identity: &Identity) -> Self {
        let left = |ends: SystemTime| ends.duration_since(SystemTime::now()).unwrap_or_default();
        Self { left: identity.ends().map(left), warn_before: warn_before(identity) }
    }

    /// True for a certificate that has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.left.is_some_and(|left| left.is_zero())
    }

    /// Returns a sentence about a certificate that has ended, or ends soon.
    pub(crate) fn sentence(&self) -> Option<String> {
        let left = self.left.filter(|left| *left <= self.warn_before)?;
        if self.has_ended() {
            return Some(String::from("the certificate has ended; clients refuse it"));
        }
        let days = counted(left.as_secs() / 86_400, "day");
        Some(format!("the certificate ends in {days}"))
    }
}

/// The time before the end of a certificate from which on users are told: some authorities give them for a
/// week.
fn warn_before(identity: &Identity) -> Duration {
    identity.lifetime().map_or(WARN_BEFORE, |lifetime| lifetime / 3).min(WARN_BEFORE)
}

/// Reads the certificates of a configuration.
pub(crate) fn read(config: &Config) -> Result<ServerTls, Failure> {
    let files = Files::named(config);
    let shown = files.certificate.display();
    if !files.certificate.exists() {
        let state_dir = config.server.state_dir.as_ref();
        let place = state_dir.map(|dir| format!(" --state-dir {}", dir.display()));
        let place = place.filter(|_| config.quic.certificate.is_none()).unwrap_or_default();
        let text = format!(
            "there is no certificate {shown}; name one in [quic], or make one to try it: frevo quic{place}"
        );
        return Err(Failure::new(Exit::NotFound, text));
    }
    let wrong = |file: &PathBuf, why: &dyn std::fmt::Display| {
        Failure::new(Exit::Config, format!("{}: {why}", file.display()))
    };
    let certificate = bounded_input::read(&files.certificate, CERTIFICATES_BYTES)?;
    let key = secret_file::read_bytes_in(&state::dir_of(config), &files.key)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no key {}", files.key.display()))
    })?;
    let identity = Identity::from_pem(&certificate, &key)
        .map_err(|error| wrong(&files.certificate, &error))?;
    let clients = match files.authorities.filter(|_| config.quic.requires_certificates()) {
        None => Clients::Anonymous,
        Some(file) => {
            let bytes = bounded_input::read(&file, CERTIFICATES_BYTES)?;
            let authorities =
                Certificates::from_pem(&bytes).map_err(|error| wrong(&file, &error))?;
            let (allow, deny) = (config.quic.allow.clone(), config.quic.deny.clone());
            let access = (!allow.is_empty()).then_some(AccessList { allow, deny });
            Clients::Certified { authorities, access }
        }
    };
    Ok(ServerTls { identity, clients })
}

/// Checks that the certificates of a configuration can be read, if it has QUIC.
pub(super) fn check(config: &Config) -> Done {
    if config.quic.is_on() {
        read(config)?;
    }
    Ok(())
}

/// The listeners of QUIC.
#[derive(Default)]
pub(super) struct Quic {
    pub(super) listeners: Vec<Listener>,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Quic {
    /// Listens where the configuration wants it; nowhere without `[quic]`. To be called before the
    /// process is confined, since a confined process makes no sockets.
    pub(super) fn open(plan: &Plan) -> Result<Self, Failure> {
        let config = &plan.config;
        let mut quic = Self::default();
        if !config.quic.is_on() {
            return Ok(quic);
        }
        let tls = read(config)?;
        let wanted = match &config.quic.listen[..] {
            [] => &[Listen::EVERYWHERE],
            wanted => wanted,
        };
        for Listen { on, port } in wanted {
            let port = port.unwrap_or(Transport::Quic.facts().port);
            let addresses = addresses_of(on)?;
            let is_everywhere = addresses.is_none();
            for address in addresses.unwrap_or_else(everywhere) {
                // If the system has chosen the port for IPv4, IPv6 uses the same port.
                let chosen = quic.addresses.last().filter(|_| is_everywhere && address.is_ipv6());
                let port = chosen.map_or(port, SocketAddr::port);
                let at = SocketAddr::new(address, port);
                if quic.addresses.contains(&at) {
                    continue;
                }
                match listen(at, tls.clone()) {
                    Err(error) if is_everywhere && address.is_ipv6() && is_without_ipv6(&error) => {
                    }
                    listening => quic.take(listening.map_err(|error| failure(at, &error))?),
                }
            }
        }
        Ok(quic)
    }

    fn take(&mut self, mut listener: Listener) {
        if let Some(first) = self.listeners.first() {
            listener.count_with(first);
        }
        self.addresses.push(listener.local_addr());
        self.listeners.push(listener);
    }

    /// Returns the watch over the certificates, which were just read.
    pub(super) fn watch(&self, config: &Config) -> CertificateWatch {
        let mut watch = CertificateWatch {
            renewals: self.listeners.iter().map(Listener::renewal).collect(),
            read: Vec::new(),
            seen: Vec::new(),
            ends: None,
            warn_before: WARN_BEFORE,
            warned: None,
        };
        if let Some(files) = Files::of(config).filter(|_| !watch.renewals.is_empty()) {
            watch.read = files.stamps();
            watch.seen.clone_from(&watch.read);
            if let Ok(tls) = read(config) {
                watch.note(&tls.identity);
            }
            watch.warn();
        }
        watch
    }
}

fn listen(at: SocketAddr, tls: ServerTls) -> io::Result<Listener> {
    Listener::new(Listener::socket(at)?, tls)
}

fn failure(at: SocketAddr, error: &io::Error) -> Failure {
    let port = at.port();
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {port} of {} is in use, perhaps by a web server (HTTP/3); use another port: \
             --quic {}",
            at.ip(),
            SocketAddr::new(at.ip(), port.saturating_add(8_000))
        ),
        io::ErrorKind::PermissionDenied => format!(
            "this user is not permitted to use UDP port {port}; use one from 1024 on: --quic {}",
            SocketAddr::new(at.ip(), port.saturating_add(8_000))
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine (see: ip address)", at.ip())
        }
        _ => format!("cannot listen on {at} for QUIC: {error}"),
    };
    Failure::new(Exit::Failed, text)
}

/// The certificates in force, and the state of their files.
pub(super) struct CertificateWatch {
    renewals: Vec<Renewal>,
    /// The state of the files when they were read.
    read: Vec<Option<Stamp>>,
    /// Their state at the last look.
    seen: Vec<Option<Stamp>>,
    /// The end of the certificate in force.
    ends: Option<SystemTime>,
    /// The time before this end from which on the log tells of it.
    warn_before: Duration,
    /// The time of the last line about this end.
    warned: Option<Instant>,
}

impl CertificateWatch {
    /// Reads the certificates of a configuration again if their files have changed and stay as they are
    /// since the last look. On a fault the old ones stay in force.
    pub(super) fn look(&mut self, config: &Config) {
        let Some(files) = Files::of(config).filter(|_| !self.renewals.is_empty()) else { return };
        let now = files.stamps();
        let is_still = std::mem::replace(&mut self.seen, now.clone()) == now;
        if is_still && self.read != now {
            self.renew(config);
        }
        self.warn();
    }

    /// Reads the certificates of a configuration. None if the server does not listen for QUIC.
    pub(super) fn load(&self, config: &Config) -> Result<Option<ServerTls>, Failure> {
        let is_used = config.quic.is_on() && !self.renewals.is_empty();
        is_used.then(|| self.read_new(config)).transpose()
    }

    /// Reads the certificates of a configuration. One that has ended is a fault while the one in force has
    /// not.
    fn read_new(&self, config: &Config) -> Result<ServerTls, Failure> {
        let tls = read(config)?;
        let was_valid = self.ends.is_none_or(|ends| ends >= SystemTime::now());
        if Outlook::of(&tls.identity).has_ended() && was_valid {
            let file = Files::named(config).certificate;
            let text = format!("{}: the certificate has ended", file.display());
            return Err(Failure::new(Exit::Config, text));
        }
        Ok(tls)
    }

    /// Notes the certificate in force.
    fn note(&mut self, identity: &Identity) {
        (self.ends, self.warned) = (identity.ends(), None);
        self.warn_before = warn_before(identity);
        if let Some(bits) = identity.rsa_bits().filter(|bits| *bits > RSA_BITS) {
            tracing::warn!(target: "frevo::server", bits,
                "QUIC: the certificate has a long RSA key, with which the server receives nothing while it \
                 signs for a new client; use a key of ECDSA (certbot: --key-type ecdsa), or of RSA with \
                 {RSA_BITS} bits");
        }
    }

    /// Reads the certificates of a configuration, and uses them.
    fn renew(&mut self, config: &Config) {
        self.put(config, self.read_new(config));
    }

    /// Uses certificates of a configuration that were read.
    pub(super) fn put(&mut self, config: &Config, read: Result<ServerTls, Failure>) {
        let Some(files) = Files::of(config).filter(|_| !self.renewals.is_empty()) else { return };
        self.read = files.stamps();
        let renewed = read.and_then(|tls| {
            for renewal in &self.renewals {
                let renewed = renewal.renew(tls.clone());
                renewed.map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
            }
            Ok(tls.identity)
        });
        match renewed {
            Ok(identity) => {
                self.note(&identity);
                let fingerprint = identity.fingerprint();
                tracing::info!(target: "frevo::server", %fingerprint, "QUIC: the certificate was read");
            }
            Err(failure) => tracing::error!(target: "frevo::server",
                "QUIC: the old certificates stay in force: {failure}"),
        }
    }

    /// Warns once a day of a certificate that ends soon.
    fn warn(&mut self) {
        let Some(ends) = self.ends else { return };
        let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
        let was_warned = self.warned.is_some_and(|warned| warned.elapsed() < WARN_AGAIN);
        if left > self.warn_before || was_warned {
            return;
        }
        self.warned = Some(Instant::now());
        let days = left.as_secs() / 86_400;
        if left.is_zero() {
            tracing::error!(target: "frevo::server",
                "QUIC: the certificate has ended; clients refuse it until the file has a new one");
        } else {
            tracing::warn!(target: "frevo::server", days,
                "QUIC: the certificate ends soon; renew it, the server reads the file by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use frevo_net::quic::{Wanted, issue};

    use super::*;

    #[test]
    fn users_are_told_in_the_last_third_and_within_30_days() {
        const DAY: u64 = 86_400;
        let told = |lasts: u64, left: i64| {
            let now = SystemTime::now() + Duration::from_secs(60);
            let ends = match u64::try_from(left) {
                Ok(left) => now + Duration::from_secs(left * DAY),
                Err(_) => now - Duration::from_secs(left.unsigned_abs() * DAY),
            };
            let lasts = Duration::from_secs(lasts * DAY);
            let wanted = Wanted {
                common_name: String::from("nas"),
                hosts: vec![String::from("nas")],
                is_authority: false,
                since: ends - lasts,
                lasts,
            };
            let own = issue(&wanted, None).unwrap();
            let own = Identity::from_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
            let outlook = Outlook::of(&own);
            (outlook.has_ended(), outlook.sentence())
        };
        assert_eq!(told(365, 40), (false, None));
        assert_eq!(told(365, 29), (false, Some(String::from("the certificate ends in 29 days"))));
        assert_eq!(told(6, 3), (false, None));
        assert_eq!(told(6, 1), (false, Some(String::from("the certificate ends in 1 day"))));
        let ended = String::from("the certificate has ended; clients refuse it");
        assert_eq!(told(6, -1), (true, Some(ended)));
    }
}
