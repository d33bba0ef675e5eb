//! The sections and keys of the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::audit::AuditSection;
use super::brake::BrakeSection;
use super::cluster::ClusterSection;
use super::fault::Fault;
use super::guests;
use super::home::HomeSection;
use super::idmap::IdmapSection;
use super::interface::InterfaceSection;
use super::kerberos::KerberosSection;
use super::ldap::LdapSection;
use super::listen::Listen;
use super::many_links::LongText;
use super::names::{AccountName, MachineSid, ServerName, Who, is_domain};
use super::namespace::{LinkSection, NamespaceSection};
use super::passwords::PasswordsSection;
use super::quic::QuicSection;
use super::rate::RateSection;
use super::recycle::RecycleSection;
use super::rpc::RpcSection;
use super::scan::ScanSection;
use super::server_limits::LimitsSection;
use super::share::ShareSection;
use super::site::SiteSection;
use super::snapshots::KeptSnapshots;
use super::storage_qos::StorageQosSection;
use super::traces::TracesSection;
use super::values::{
    AccountListingChoice, CipherName, ConfinementChoice, DialectName, DiscoveryChoice,
    EncryptionChoice, LogFormat, SigningAlgorithmName, SigningChoice, UnknownUsersChoice,
};
use super::worm::WormSection;

/// A whole file. What it leaves out is `None` or empty, so that flags can stand
/// in for it before the defaults do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[server]`
    pub server: ServerSection,
    /// `[limits]`
    pub limits: LimitsSection,
    /// `[audit]`
    pub audit: AuditSection,
    /// `[admin]`
    pub admin: AdminSection,
    /// `[passwords]`
    pub passwords: PasswordsSection,
    /// `[kerberos]`
    pub kerberos: KerberosSection,
    /// `[ldap]`
    pub ldap: LdapSection,
    /// `[rpc]`
    pub rpc: RpcSection,
    /// `[quic]`
    pub quic: QuicSection,
    /// `[traces]`
    pub traces: TracesSection,
    /// `[cluster]`
    pub cluster: ClusterSection,
    /// Each `[[idmap]]`
    #[serde(rename = "idmap")]
    pub idmaps: Vec<IdmapSection>,
    /// Each `[[interface]]`
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceSection>,
    /// Each `[[share]]`
    #[serde(rename = "share")]
    pub shares: Vec<ShareSection>,
    /// Each `[[namespace]]`
    #[serde(rename = "namespace")]
    pub namespaces: Vec<NamespaceSection>,
    /// Each `[[site]]`
    #[serde(rename = "site")]
    pub sites: Vec<SiteSection>,
    /// Each `[[rate]]`
    #[serde(rename = "rate")]
    pub rates: Vec<RateSection>,
    /// Each `[[storage_qos]]`
    #[serde(rename = "storage_qos")]
    pub storage_policies: Vec<StorageQosSection>,
    /// Each `[[user]]`
    #[serde(rename = "user")]
    pub users: Vec<UserSection>,
}

/// `[server]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSection {
    /// Name that clients see.
    pub name: Option<ServerName>,
    /// Text that clients see beside it.
    pub comment: Option<String>,
    /// SID of the machine, in place of the one that the account file keeps.
    pub sid: Option<MachineSid>,
    /// Model of Apple's that macOS shows the icon of.
    pub model: Option<String>,
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// True to listen for SMB Direct too.
    pub rdma: Option<bool>,
    /// Lowest dialect that is negotiated.
    pub min_dialect: Option<DialectName>,
    /// Highest dialect that is negotiated.
    pub max_dialect: Option<DialectName>,
    /// Sealing.
    pub encryption: Option<EncryptionChoice>,
    /// Signing.
    pub signing: Option<SigningChoice>,
    /// Ciphers, best first.
    pub ciphers: Option<Vec<CipherName>>,
    /// Signing algorithms of 3.1.1, best first.
    pub signing_algorithms: Option<Vec<SigningAlgorithmName>>,
    /// No share is written to, whatever it says itself.
    pub read_only: Option<bool>,
    /// Where what outlives the process is kept.
    pub state_dir: Option<PathBuf>,
    /// The account file; `users` in the state directory when left out.
    pub users_file: Option<PathBuf>,
    /// Names by which clients call accounts.
    pub user_map: BTreeMap<String, AccountName>,
    /// A file of such names, as Samba's `username map`.
    pub user_map_file: Option<PathBuf>,
    /// How log lines are written.
    pub log: Option<LogFormat>,
    /// Which log lines are written.
    pub log_level: Option<String>,
    /// Threads that serve; 0 is one for each processor.
    pub cores: Option<usize>,
    /// True to bind each serving thread to a processor of its own.
    pub pin_cores: Option<bool>,
    /// False refuses NTLM: clients log on by Kerberos only.
    pub ntlm: Option<Spanned<bool>>,
    /// Domains whose users log on by NTLM through winbind.
    pub winbind_domains: Option<Spanned<Vec<String>>>,
    /// Every client must prove that nobody changed its logon.
    pub require_mic: Option<bool>,
    /// A session may authenticate anew without an account.
    pub anonymous: Option<bool>,
    /// The answer to a client whose name no account has.
    pub unknown_users: Option<UnknownUsersChoice>,
    /// Users and groups that administer the server.
    pub administrators: Option<Spanned<Vec<Who>>>,
    /// False takes the rights of administrators from Domain Admins.
    pub domain_admins: Option<bool>,
    /// The users who may list accounts.
    pub account_listing: Option<AccountListingChoice>,
    /// Announcement on the local network.
    pub discovery: Option<DiscoveryChoice>,
    /// Interfaces to announce the server on; all that it listens on when empty.
    pub discovery_interfaces: Vec<String>,
    /// Workgroup that Windows shows the server in.
    pub workgroup: Option<String>,
    /// Confinement of the process.
    pub confinement: Option<ConfinementChoice>,
    /// Folders where a reload may add shares, besides those of the start.
    pub confine_to: Vec<PathBuf>,
    /// Folders below which administrators may add shares over the network.
    pub share_roots: Vec<PathBuf>,
    /// Administrators may make namespaces of shares over the network.
    pub network_namespaces: Option<bool>,
    /// Names that clients may have meant this server by.
    pub target_names: Option<Vec<String>>,
}

/// `[admin]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSection {
    /// False turns the admin interface off.
    pub enabled: Option<bool>,
    /// The Unix socket; chosen by the server when left out.
    pub socket: Option<PathBuf>,
    /// An address on TCP to listen on too.
    pub listen: Option<SocketAddr>,
    /// A file with the token that requests on TCP need.
    pub token_file: Option<PathBuf>,
    /// A file with the token that changes users, shares and limits on TCP.
    pub manage_token_file: Option<PathBuf>,
    /// The certificate of TLS on TCP.
    pub certificate: Option<PathBuf>,
    /// The key of the certificate.
    pub key: Option<PathBuf>,
    /// True if the server keeps the right to write its configuration.
    pub write_configuration: Option<bool>,
    /// True if users may change their own passwords on the page, without a token.
    pub self_service: Option<bool>,
}

impl AdminSection {
    /// Keys that contradict each other, or lack another one.
    fn faults(&self) -> Option<Fault> {
        let (what, hint) = match (self.enabled, &self.listen) {
            (Some(false), Some(_)) => {
                ("[admin] has enabled = false and listen", "remove one of the two keys")
            }
            (_, Some(_))
                if self.token_file.is_none()
                    && self.manage_token_file.is_none()
                    && self.self_service != Some(true) =>
            {
                (
                    "[admin] listen needs token_file",
                    "name a file with the secret that requests on TCP must have",
                )
            }
            (_, None) if self.manage_token_file.is_some() => (
                "[admin] manage_token_file needs listen",
                "the token is for TCP; root needs none on the Unix socket",
            ),
            (_, None) if self.self_service == Some(true) => (
                "[admin] self_service needs listen",
                "name the address on which users reach the page",
            ),
            (_, Some(listen))
                if self.self_service == Some(true)
                    && !listen.ip().to_canonical().is_loopback()
                    && self.certificate.is_none() =>
            {
                (
                    "[admin] self_service and listen need TLS: others on the network could read the \
                     passwords",
                    "name a certificate and its key, or listen on 127.0.0.1",
                )
            }
            _ if self.certificate.is_some() != self.key.is_some() => {
                ("[admin] certificate and key need each other", "name both files, or neither")
            }
            (_, Some(listen))
                if self.manage_token_file.is_some()
                    && !listen.ip().to_canonical().is_loopback()
                    && self.certificate.is_none() =>
            {
                (
                    "[admin] manage_token_file and listen need TLS: others on the network could \
                     read the token",
                    "name a certificate and its key, or listen on 127.0.0.1",
                )
            }
            _ => return None,
        };
        Some(Fault::new(what).hint(hint))
    }
}

/// A text of links alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeLinks {
    namespace: LinksOfNamespace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksOfNamespace {
    #[serde(rename = "link")]
    links: Vec<LinkSection>,
}

/// `[[user]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSection {
    /// Its name.
    pub name: Spanned<AccountName>,
    /// A file that holds its password.
    pub password_file: PathBuf,
}

impl Config {
    /// Tells each share of the snapshots and the recycle bins of all, which its folder may
    /// contain. To be called when shares were added.
    pub fn guard_folders(&mut self) {
        let folder_of = |share: &ShareSection| share.path.get_ref().clone();
        let bins = self.shares.iter().filter_map(|share| {
            // A share with one folder for each user is left out, because its recycle bins are in
            // the users' folders.
            let recycle = share.recycle.as_ref().filter(|_| share.user_part().is_none())?;
            Some((recycle.folder.0.clone(), folder_of(share)))
        });
        let bins: Vec<_> = bins.collect();
        let all: Vec<_> = self
            .shares
            .iter()
            .filter_map(|share| Some((share.snapshot_folders()?, share.path.get_ref().clone())))
            .collect();
        for share in &mut self.shares {
            share.guarded.clone_from(&all);
            share.bins.clone_from(&bins);
        }
    }

    /// Gives shares the recycle bins and the snapshots that `keep_deleted` stands for.
    pub(super) fn keep_deleted_files(&mut self) {
        self.shares.iter_mut().for_each(ShareSection::keep_deleted_files);
    }

    /// Tells the targets of all links the sites of their names.
    pub(super) fn find_sites(&mut self) {
        NamespaceSection::find_sites(&mut self.namespaces, &self.sites);
    }

    /// Reads a long text, its links some at a time. None for one that has to be read as a whole.
    pub(super) fn of_long_text(text: &str) -> Option<Self> {
        let long = LongText::cut(text)?;
        let mut config: Self = toml::from_str(&long.rest()).ok()?;
        let has_links = config.namespaces.iter().any(|namespace| !namespace.links.is_empty());
        if has_links || long.namespaces() != config.namespaces.len() {
            return None;
        }
        for (namespace, text, start) in long.pieces() {
            let links = &mut config.namespaces.get_mut(namespace)?.links;
            let piece: SomeLinks = toml::from_str(text).ok()?;
            links.extend(piece.namespace.links.into_iter().map(|link| link.moved(start)));
        }
        config.namespaces.iter_mut().for_each(|namespace| namespace.links.shrink_to_fit());
        Some(config)
    }

    /// Faults that no key has alone.
    pub(super) fn faults(&self, text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        faults.extend(ShareSection::faults(&self.shares, text));
        faults.extend(SiteSection::faults(&self.sites, text));
        let shares: Vec<&str> = self.shares.iter().map(|s| s.name.get_ref().as_str()).collect();
        faults.extend(RateSection::faults(&self.rates, &shares, text));
        faults.extend(StorageQosSection::faults(&self.storage_policies, text));
        faults.extend(NamespaceSection::faults(&self.namespaces, &self.shares, &self.sites, text));
        for (index, user) in self.users.iter().enumerate() {
            let name = user.name.get_ref();
            let same = |other: &UserSection| {
                fold_name(other.name.get_ref().as_str()) == fold_name(name.as_str())
            };
            if self.users.iter().take(index).any(same) {
                let what = format!("a second user is called {name}");
                faults.push(Fault::at(text, &user.name.span(), what));
            }
        }
        faults.extend(self.audit.faults(text));
        faults.extend(self.kerberos.faults(self.server.ntlm.as_ref(), text));
        faults.extend(self.ldap.faults());
        faults.extend(self.fault_of_winbind(text));
        faults.extend(self.server.fault_of_administrators(text));
        let idmaps = IdmapSection::faults(&self.idmaps);
        faults.extend(idmaps.into_iter().map(|(span, what)| Fault::at(text, &span, what)));
        let interfaces = InterfaceSection::faults(&self.interfaces);
        faults.extend(interfaces.into_iter().map(|(span, what)| Fault::at(text, &span, what)));
        let open = self.shares.iter().find(|share| share.guest.is_some());
        let open = open.map(|share| share.name.get_ref());
        let (encryption, unknown_users) = (self.server.encryption, self.server.unknown_users);
        faults.extend(guests::fault_of_server(open, encryption, unknown_users));
        faults.extend(self.contradictions());
        faults.extend(self.limits.faults(text));
        faults.extend(self.faults_of_cluster(text));
        faults
    }

    /// Domains of winbind that cannot be used.
    fn fault_of_winbind(&self, text: &str) -> Option<Fault> {
        let domains = self.server.winbind_domains.as_ref()?;
        let is_wrong = |name: &&String| !is_domain(name);
        let at = |what: String, hint| Fault::at(text, &domains.span(), what).hint(hint);
        if let Some(name) = domains.get_ref().iter().find(is_wrong) {
            let what = format!("{name:?} is not the name of a domain, such as EXAMPLE");
            return Some(at(what, "list the short name and the DNS name"));
        }
        let is_off = self.server.ntlm.as_ref().is_some_and(|ntlm| !ntlm.get_ref());
        if is_off && !domains.get_ref().is_empty() {
            let what = String::from("winbind_domains is for NTLM, which ntlm = false turns off");
            return Some(at(what, "remove one of the two keys"));
        }
        let has_realms = self.kerberos.realms.is_some() && !domains.get_ref().is_empty();
        has_realms.then(|| {
            let what = "winbind_domains makes users of a domain, and realms of [kerberos] accounts";
            at(what.to_owned(), "remove one of the two keys")
        })
    }

    /// Returns the users and groups of domains in all rules: of shares, and of who administers.
    pub fn names_of_domains(&self) -> impl Iterator<Item = &Who> {
        let administrators = self.server.administrators().iter();
        let administrators = administrators.filter(|who| who.domain().is_some());
        let roots = self.namespaces.iter().flat_map(|namespace| &namespace.allow);
        let shares = self.shares.iter().flat_map(ShareSection::names_of_domains);
        let limited = self.rates.iter().flat_map(|rate| &rate.users);
        let others = roots.chain(limited).filter(|who| who.domain().is_some());
        shares.chain(others).chain(administrators)
    }

    /// Settings of `[server]` that contradict each other.
    pub fn contradictions(&self) -> Vec<Fault> {
        let sections = self.admin.faults().into_iter().chain(self.rpc.faults());
        let sections = sections.chain(self.quic.faults()).chain(self.passwords.faults());
        self.server.faults().into_iter().chain(sections).collect()
    }
}

impl ServerSection {
    /// Returns the users and groups that the file makes administrators.
    pub fn administrators(&self) -> &[Who] {
        self.administrators.as_ref().map_or(&[], |listed| listed.get_ref())
    }

    /// A group that every user is in.
    fn fault_of_administrators(&self, text: &str) -> Option<Fault> {
        let listed = self.administrators.as_ref()?;
        let sid = |who: &Who| who.group()?.parse::<Sid>().ok();
        let everybody =
            [Sid::EVERYONE, Sid::NETWORK, Sid::ANONYMOUS, Sid::AUTHENTICATED_USERS, Sid::USERS];
        let is_everybody = |who: &&Who| sid(who).is_some_and(|sid| everybody.contains(&sid));
        let who = listed.get_ref().iter().find(is_everybody)?;
        let what = format!("administrators: every user is in {who}");
        let hint = "name the users and groups that administer the server";
        Some(Fault::at(text, &listed.span(), what).hint(hint))
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, hint: &str| {
            let (what, hint) = (what.to_owned(), Some(hint.to_owned()));
            faults.push(Fault { hint, ..Fault::new(what) });
        };
        if self.lowest_dialect() as u8 > self.highest_dialect() as u8 {
            fault("min_dialect is above max_dialect", "no client could connect");
        }
        if self.ciphers.as_ref().is_some_and(Vec::is_empty) {
            fault("ciphers is empty", "to switch encryption off, write encryption = \"off\"");
        }
        if self.signing_algorithms.as_ref().is_some_and(Vec::is_empty) {
            fault("signing_algorithms is empty", "remove the key to allow all algorithms");
        }
        for (key, folders) in [("confine_to", &self.confine_to), ("share_roots", &self.share_roots)]
        {
            if let Some(folder) = folders.iter().find(|folder| !folder.is_absolute()) {
                let what = format!("{key}: the path {} is not absolute", folder.display());
                fault(&what, "begin the path with /");
            }
        }
        if self.encryption.unwrap_or(EncryptionChoice::Required) == EncryptionChoice::Required
            && (self.highest_dialect() as u8) < DialectName::Smb30 as u8
        {
            fault(
                "encryption is required, but max_dialect is below 3.0, which cannot encrypt",
                "raise max_dialect, or write encryption = \"offered\"",
            );
        }
        faults
    }

    fn lowest_dialect(&self) -> DialectName {
        self.min_dialect.unwrap_or(DialectName::Smb202)
    }

    fn highest_dialect(&self) -> DialectName {
        self.max_dialect.unwrap_or(DialectName::Smb311)
    }
}

/// Every section with its keys, as the file has them.
pub fn keys() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("the file", keys_of::<Config>()),
        ("[server]", keys_of::<ServerSection>()),
        ("[limits]", keys_of::<LimitsSection>()),
        ("[audit]", keys_of::<AuditSection>()),
        ("[admin]", keys_of::<AdminSection>()),
        ("[passwords]", keys_of::<PasswordsSection>()),
        ("[kerberos]", keys_of::<KerberosSection>()),
        ("[ldap]", keys_of::<LdapSection>()),
        ("[rpc]", keys_of::<RpcSection>()),
        ("[quic]", keys_of::<QuicSection>()),
        ("[traces]", keys_of::<TracesSection>()),
        ("[cluster]", keys_of::<ClusterSection>()),
        ("[[idmap]]", keys_of::<IdmapSection>()),
        ("[[interface]]", keys_of::<InterfaceSection>()),
        ("[[share]]", keys_of::<ShareSection>()),
        ("[share.recycle]", keys_of::<RecycleSection>()),
        ("[share.snapshots]", keys_of::<KeptSnapshots>()),
        ("[share.brake]", keys_of::<BrakeSection>()),
        ("[share.scan]", keys_of::<ScanSection>()),
        ("[share.worm]", keys_of::<WormSection>()),
        ("[share.home]", keys_of::<HomeSection>()),
        ("[[namespace]]", keys_of::<NamespaceSection>()),
        ("[[namespace.link]]", keys_of::<LinkSection>()),
        ("[[site]]", keys_of::<SiteSection>()),
        ("[[rate]]", keys_of::<RateSection>()),
        ("[[storage_qos]]", keys_of::<StorageQosSection>()),
        ("[[user]]", keys_of::<UserSection>()),
    ]
}

/// The keys that serde knows of: it lists them when it meets another.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    match toml::from_str::<T>("\"\" = 0") {
        Ok(_) => Vec::new(),
        Err(error) => error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect(),
    }
}
