//! `[quic]`: SMB over QUIC.

use std::path::PathBuf;

use frevo_net::quic::Fingerprint;
use serde::Deserialize;

use super::fault::Fault;
use super::listen::Listen;
use super::parsed;
use super::values::ClientCertificates;

/// `[quic]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuicSection {
    /// True to listen for QUIC.
    pub enabled: Option<bool>,
    /// Where to listen; on every address when left out.
    pub listen: Vec<Listen>,
    /// The file with the certificate of the server; `quic.crt` in the state directory when left out.
    pub certificate: Option<PathBuf>,
    /// The file with its key; `quic.key` in the state directory when left out.
    pub key: Option<PathBuf>,
    /// The certificates that clients need.
    pub client_certificates: Option<ClientCertificates>,
    /// The file with the authorities that sign the certificates of clients.
    pub client_ca: Option<PathBuf>,
    /// Certificates that let in clients; all that the authorities have signed when left out.
    #[serde(deserialize_with = "parsed::list")]
    pub allow: Vec<Fingerprint>,
    /// Certificates that keep out clients.
    #[serde(deserialize_with = "parsed::list")]
    pub deny: Vec<Fingerprint>,
    /// True to open pipes over QUIC, too.
    pub named_pipes: Option<bool>,
}

impl QuicSection {
    /// True if the server listens for QUIC: it is told so, or where.
    pub fn is_on(&self) -> bool {
        self.enabled.unwrap_or(!self.listen.is_empty())
    }

    /// True if clients need certificates.
    pub fn requires_certificates(&self) -> bool {
        self.client_certificates == Some(ClientCertificates::Required)
    }

    /// Keys that contradict each other.
    pub(super) fn faults(&self) -> Option<Fault> {
        let fault = |what: &str, hint: &str| Some(Fault::new(what.to_owned()).hint(hint));
        if self.enabled == Some(false) && !self.listen.is_empty() {
            return fault("[quic] has enabled = false and listen", "remove one of the two keys");
        }
        if self.certificate.is_some() != self.key.is_some() {
            return fault("[quic] has only one of certificate and key", "name both files");
        }
        let files = [&self.certificate, &self.key, &self.client_ca];
        if let Some(file) = files.into_iter().flatten().find(|file| !file.is_absolute()) {
            let what = format!("[quic]: the path {} is not absolute", file.display());
            return fault(&what, "begin the path with /");
        }
        if self.requires_certificates() && self.client_ca.is_none() {
            let what = "[quic] has client_certificates = \"required\" and no client_ca";
            return fault(what, "name the file with the authorities that sign them");
        }
        let has_rules = self.client_ca.is_some() || !self.allow.is_empty() || !self.deny.is_empty();
        if has_rules && !self.requires_certificates() {
            let what = "[quic] has rules for certificates that no client needs";
            return fault(what, "write client_certificates = \"required\"");
        }
        if self.allow.is_empty() && !self.deny.is_empty() {
            let what = "[quic] has deny and no allow, which lets nobody in";
            return fault(what, "list the authority's own certificate in allow");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Option<String> {
        toml::from_str::<QuicSection>(text).unwrap().faults().map(|fault| fault.what)
    }

    #[test]
    fn contradictions_are_found() {
        let hash = "00".repeat(32);
        let wanted = "client_certificates = \"required\"\nclient_ca = \"/c\"\n";
        for good in [
            "",
            "enabled = true",
            "listen = [\":4433\"]\ncertificate = \"/a\"\nkey = \"/b\"",
            wanted,
            &format!("{wanted}allow = [\"{hash}\"]\ndeny = [\"{hash}\"]"),
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, what) in [
            ("enabled = false\nlisten = [\"*\"]", "enabled = false and listen"),
            ("certificate = \"/a\"", "only one of certificate and key"),
            ("certificate = \"/a\"\nkey = \"b\"", "the path b is not absolute"),
            ("client_certificates = \"required\"", "no client_ca"),
            ("client_ca = \"/c\"", "no client needs"),
            (&format!("{wanted}deny = [\"{hash}\"]"), "lets nobody in"),
        ] {
            assert!(fault(bad).is_some_and(|fault| fault.contains(what)), "{bad}");
        }
        assert!(toml::from_str::<QuicSection>("allow = [\"00\"]").is_err());
    }

    #[test]
    fn a_place_to_listen_on_is_enough() {
        let is_on = |text: &str| toml::from_str::<QuicSection>(text).unwrap().is_on();
        assert!(is_on("listen = [\":4433\"]") && is_on("enabled = true"));
        assert!(!is_on("") && !is_on("enabled = false"));
    }
}
