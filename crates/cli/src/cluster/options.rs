//! The options of the client of etcd, with the secrets of the configuration.

use std::path::Path;

use frevo_auth::Zeroizing;
use frevo_cluster::Settings;
use frevo_cluster::keys::Layout;
use frevo_config::Config;
use frevo_etcd::client::{Account, Identity, Options, Tls};

use super::report::now;
use crate::configured::cluster as configured;
use crate::exit::{Exit, Failure};
use crate::secret_file;
use crate::trusted_file::{self, Refusal};

/// The longest file of certificates, bytes.
const PEM_BYTES: u64 = 1 << 20;

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, format!("[cluster]: {why}"))
}

/// The options of the client of etcd, with the secrets of the configuration.
pub(crate) fn options(config: &Config, settings: &Settings) -> Result<Options, Failure> {
    let section = &config.cluster;
    let endpoints = configured::endpoints(config).map_err(wrong)?;
    let mut options = Options::new(endpoints);
    let ttl = settings.timing.ttl();
    options.attempt = ttl / 4;
    options.whole = ttl;
    options.quiet = ttl;
    options.identity = Some(Identity {
        key: Layout::new(&settings.cluster).etcd(),
        value: format!("{} {}", settings.node, now()),
    });
    if let Some(ca) = &section.ca {
        options.tls = Some(Tls {
            authorities: certificates(ca)?,
            certificate: section.certificate.as_deref().map(certificates).transpose()?,
            key: section.key.as_deref().map(key).transpose()?,
            server_name: None,
        });
    }
    if let (Some(name), Some(path)) = (&section.user, &section.password_file) {
        let text = secret_file::read(path)?.ok_or_else(|| missing(path))?;
        let password = text.trim_end_matches(['\r', '\n']).to_owned().into();
        options.account = Some(Account { name: name.clone(), password });
    }
    Ok(options)
}

fn missing(path: &Path) -> Failure {
    Failure::new(Exit::Auth, format!("there is no file {}", path.display()))
}

/// Certificates, which only root and this user may change.
pub(super) fn certificates(path: &Path) -> Result<Vec<u8>, Failure> {
    match trusted_file::read(path, PEM_BYTES) {
        Ok(text) => Ok(text.into_bytes()),
        Err(Refusal::OthersWrite(why)) => Err(Failure::new(Exit::Auth, why)),
        Err(Refusal::Unreadable(error)) => {
            Err(Failure::failed(format!("cannot read {}", path.display()))(error))
        }
    }
}

/// A key, which only its owner may read.
fn key(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    secret_file::read_bytes(path)?.ok_or_else(|| missing(path))
}
