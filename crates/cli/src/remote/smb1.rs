//! Servers that speak only SMB1: `smb1://HOST` and `--smb1`. Only in builds with the feature `smb1`.

pub(super) mod options;
pub(super) mod servers;

use frevo_client::{Client, Credentials, Options, ServerName};
use frevo_smb1_client::{Settings, SigningWish};

use super::connection_options::{Connection, KerberosUse, QuicUse, RdmaUse};
use super::location::{Url, server_key};
use crate::console::tell;
use crate::exit::{Exit, Failure};

impl Connection {
    /// Returns true if the server of `url` is to be reached by SMB1.
    pub(super) fn is_over_smb1(&self, url: &Url) -> bool {
        self.reaches_by_smb1(&url.server)
    }

    /// Returns true if `server` is reached by SMB1.
    pub(super) fn reaches_by_smb1(&self, server: &ServerName) -> bool {
        self.smb1.smb1 || servers::is_written_so(&server_key(server))
    }

    /// Returns the client that reaches the server of `url` by SMB1.
    pub(super) fn smb1_client(
        &self,
        url: &Url,
        options: Options,
        credentials: &Credentials,
    ) -> Result<Client, Failure> {
        let refused = |text: &str| Err(Failure::new(Exit::Usage, text));
        if self.encrypt {
            return refused("SMB1 cannot encrypt; leave out --encrypt, or do not use SMB1");
        }
        if self.kerberos == Some(KerberosUse::Required) || self.keytab.is_some() {
            return refused("Frevo has no Kerberos with SMB1; log on with a password");
        }
        let is_other_way = url.over_quic
            || self.quic == QuicUse::Required
            || self.rdma == RdmaUse::Required
            || !self.quic_pin.is_empty()
            || self.quic_ca.is_some()
            || self.quic_certificate.is_some()
            || self.min_dialect.is_some();
        if is_other_way {
            return refused(
                "SMB1 goes over TCP alone and has no newer dialects; leave out SMB1, or the options of \
                 QUIC and RDMA and --min-dialect",
            );
        }
        let signing = match (self.smb1.smb1_signed, self.sign_when_asked) {
            (true, _) => SigningWish::Required,
            (_, true) => SigningWish::WhenRequired,
            _ => SigningWish::WhenOffered,
        };
        let settings = Settings {
            weak_logon: self.smb1.weak_logon,
            lm: self.smb1.lm_logon,
            guest: self.guest,
            signing,
            code_page: self.smb1.code_page.0,
        };
        self.warn(&url.server);
        match frevo_smb1_client::client(options, credentials, settings) {
            Some(client) => Ok(client),
            None => refused("SMB1 needs a password or its NT hash"),
        }
    }

    /// Says once for a server what is not protected.
    fn warn(&self, server: &ServerName) {
        if !servers::needs_warning(server_key(server)) {
            return;
        }
        let logon = if self.smb1.weak_logon { ", and find the password" } else { "" };
        tell(format_args!(
            "warning: SMB1 to {server} encrypts nothing: anyone on the network can read all files and \
             names, and change them where messages are not signed{logon}"
        ));
    }
}
