//! Settings of the protocol and limits, made of their sections.

use std::sync::Arc;
use std::time::Duration;

use frevo_config::{
    AccountListingChoice, Config, EachChoice, EncryptionChoice, IdmapSection, InterfaceSection,
    LimitsSection, Numbers, RateSection, ServerSection, SigningChoice, SiteSection, Size,
    StorageQosSection, UnknownUsersChoice, Who,
};
use frevo_server::access_rules::Names;
use frevo_server::administrators::AdministratorRules;
use frevo_server::id_map::{IdMap, IdRange};
use frevo_server::rate_rules::{Each, RateRule, StoragePolicy};
use frevo_server::settings::{AccountListing, Encryption, InterfaceOverride, Signing};
use frevo_server::{Limits, Settings, Site};
use frevo_wire::dtyp::Guid;
use toml::Spanned;

/// The settings of the protocol; `name` is the server's where the file has
/// none.
pub(crate) fn settings(config: &Config, name: &str, guid: Guid) -> Settings {
    let section = &config.server;
    let mut settings = Settings {
        server_guid: guid,
        server_name: section.name.as_ref().map_or(name, |name| name.as_str()).to_owned(),
        ..Settings::default()
    };
    if let Some(comment) = &section.comment {
        settings.comment.clone_from(comment);
    }
    if let Some(workgroup) = &section.workgroup {
        settings.workgroup.clone_from(workgroup);
    }
    settings.machine_sid = section.sid.map(|sid| sid.0);
    settings.has_host_sids = section.sid.is_some();
    if let Some(dialect) = section.max_dialect {
        settings.max_dialect = dialect.into();
        settings.min_dialect = settings.min_dialect.min(settings.max_dialect);
    }
    if let Some(dialect) = section.min_dialect {
        settings.min_dialect = dialect.into();
    }
    settings.quic_pipes = config.quic.named_pipes == Some(true);
    if let Some(choice) = section.encryption {
        settings.encryption = encryption(choice);
    }
    if let Some(choice) = section.signing {
        settings.signing = signing(choice);
    }
    if let Some(ciphers) = &section.ciphers {
        settings.ciphers = ciphers.iter().map(|&name| name.into()).collect();
    }
    if let Some(algorithms) = &section.signing_algorithms {
        settings.signing_algorithms = algorithms.iter().map(|&name| name.into()).collect();
    }
    let bytes = |size: &Option<Spanned<Size>>, most: u32| {
        size.as_ref().map_or(most, |size| u32::try_from(size.get_ref().0).unwrap_or(most))
    };
    settings.max_io = bytes(&config.limits.max_io, settings.max_io);
    settings.max_transact = bytes(&config.limits.max_transact, settings.max_transact);
    if let Some(model) = &section.model {
        settings.model.clone_from(model);
    }
    settings.posix = config.shares.is_empty() || config.shares.iter().any(|share| share.posix);
    settings.ntlm = section.ntlm.as_ref().is_none_or(|ntlm| *ntlm.get_ref());
    let passed_on = section.winbind_domains.as_ref();
    settings.passed_on = passed_on.map_or_else(Vec::new, |names| names.get_ref().clone());
    settings.realms = config.kerberos.account_realms();
    settings.require_mic = section.require_mic.unwrap_or(settings.require_mic);
    let minutes = config.limits.idle_session_minutes;
    settings.idle_session_minutes = minutes.unwrap_or(settings.idle_session_minutes);
    settings.anonymous = section.anonymous.unwrap_or(settings.anonymous);
    settings.unknown_users_are_guests = section.unknown_users == Some(UnknownUsersChoice::Guest);
    settings.administrators = administrators(section);
    if let Some(choice) = section.account_listing {
        settings.account_listing = account_listing(choice);
    }
    settings.id_map = Arc::new(id_map(config));
    settings.interfaces = config.interfaces.iter().map(interface).collect();
    settings.rates = config.rates.iter().map(rate).collect();
    settings.storage_policies = config.storage_policies.iter().map(storage_policy).collect();
    settings.sites = config.sites.iter().map(site).collect();
    if let Some(names) = &section.target_names {
        settings.target_names.clone_from(names);
    }
    settings
}

/// Returns the rules by which users administer the server.
fn administrators(section: &ServerSection) -> AdministratorRules {
    let named = section.administrators().iter().map(Who::as_str);
    AdministratorRules::new(named, section.domain_admins.unwrap_or(true))
}

const fn encryption(choice: EncryptionChoice) -> Encryption {
    match choice {
        EncryptionChoice::Required => Encryption::Required,
        EncryptionChoice::Offered => Encryption::Offered,
        EncryptionChoice::Off => Encryption::Off,
    }
}

const fn signing(choice: SigningChoice) -> Signing {
    match choice {
        SigningChoice::Required => Signing::Required,
        SigningChoice::Offered => Signing::Offered,
    }
}

const fn account_listing(choice: AccountListingChoice) -> AccountListing {
    match choice {
        AccountListingChoice::Administrators => AccountListing::Administrators,
        AccountListingChoice::Users => AccountListing::Users,
    }
}

/// Returns the facts that clients are told of an address.
fn interface(section: &InterfaceSection) -> InterfaceOverride {
    InterfaceOverride {
        address: section.address.get_ref().to_canonical(),
        speed: section.speed.map(|speed| speed.0),
        rss: section.rss,
        rdma: section.rdma,
    }
}

fn rate(section: &RateSection) -> RateRule {
    let bytes = |size: &Option<Spanned<Size>>| size.as_ref().map(|size| size.get_ref().0);
    let mut rule = RateRule::new(section.name.get_ref());
    rule.shares = section.shares.iter().map(|share| share.get_ref().clone()).collect();
    rule.users = Names::of(section.users.iter().map(Who::as_str));
    rule.networks.clone_from(&section.networks);
    (rule.read, rule.write) = (bytes(&section.read), bytes(&section.write));
    rule.each = section.each.map(|each| match each {
        EachChoice::User => Each::User,
        EachChoice::Session => Each::Session,
        EachChoice::Address => Each::Address,
    });
    (rule.operations, rule.weight) = (section.operations, section.weight);
    if let Some(burst) = section.burst_milliseconds {
        rule.burst = Duration::from_millis(burst);
    }
    rule
}

fn storage_policy(section: &StorageQosSection) -> StoragePolicy {
    StoragePolicy {
        name: section.name.get_ref().clone(),
        id: section.id.get_ref().0,
        iops: section.iops,
        bandwidth: section.bandwidth.as_ref().map(|size| size.get_ref().0),
    }
}

fn site(section: &SiteSection) -> Site {
    Site { name: section.name.get_ref().clone(), networks: section.networks.clone() }
}

/// Returns the numbers of the host for users and groups of domains.
fn id_map(config: &Config) -> IdMap {
    let range = |section: &IdmapSection| {
        let Numbers { first, last } = *section.range.get_ref();
        let (domain, base_rid) = (section.domain_sid.get_ref().0, section.base_rid);
        IdRange { domain, first, last, base_rid }
    };
    IdMap::new(config.idmaps.iter().map(range).collect())
}

/// The limits of a server; defaults where the section says nothing.
pub(crate) fn limits(section: &LimitsSection) -> Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let defaults = Limits::default();
    Limits {
        connections: section.connections.unwrap_or(defaults.connections),
        drain: section.drain_seconds.map_or(defaults.drain, Duration::from_secs),
        memory: section.memory.as_ref().map_or(defaults.memory, |size| bytes(size.get_ref().0)),
        pool_per_core: section.pool_per_core.as_ref().map(|size| bytes(size.0)),
        connections_per_user: section.connections_per_user,
        connections_per_address: section.connections_per_address,
        sessions_per_user: section.sessions_per_user,
        opens_per_user: section.opens_per_user,
        descriptors: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Settings {
        settings(&Config::parse(text).unwrap(), "BOX", Guid::default())
    }

    /// Tests that no request that the server has by default is refused in the configuration.
    #[test]
    fn the_largest_request_may_be_configured() {
        use frevo_config::limits::MAX_IO_MAX;
        let defaults = Settings::default();
        assert_eq!([defaults.max_io, defaults.max_transact].map(u64::from), [MAX_IO_MAX; 2]);
        let set = of("[limits]\nmax_io = \"1M\"\nmax_transact = \"64K\"\n");
        assert_eq!((set.max_io, set.max_transact), (1 << 20, 1 << 16));
    }

    #[test]
    fn limits_of_rate_are_passed_on() {
        let set = of(
            "[[share]]\nname = \"data\"\npath = \"/d\"\n[[rate]]\nname = \"a\"\nshares = [\"data\"]\n\
                      users = [\"@staff\"]\nnetworks = [\"10.0.0.0/8\"]\nread = \"1M\"\nwrite = \"2M\"\n\
                      operations = 7\nburst_milliseconds = 50\nweight = 3\neach = \"address\"\n",
        );
        let [rule] = &set.rates[..] else { panic!("{:?}", set.rates) };
        assert_eq!((&*rule.name, &*rule.shares[0], rule.networks.len()), ("a", "data", 1));
        assert_eq!(
            (rule.read, rule.write, rule.operations),
            (Some(1 << 20), Some(2 << 20), Some(7))
        );
        assert_eq!((rule.burst, rule.weight), (Duration::from_millis(50), Some(3)));
        assert!(rule.users.has_groups());
        assert_eq!(rule.each, Some(Each::Address));
    }

    #[test]
    fn users_of_domains_have_numbers() {
        let set = of("[[idmap]]\ndomain_sid = \"S-1-5-21-1-2-3\"\nrange = \"100000-199999\"\n\
                      [[idmap]]\ndomain_sid = \"S-1-5-21-4-5-6\"\nrange = \"200000 - 299999\"\n\
                      base_rid = 1000\n");
        let sid = |text: &str| text.parse().unwrap();
        assert_eq!(set.id_map.number(&sid("S-1-5-21-1-2-3-513")), Some(100_513));
        assert_eq!(set.id_map.number(&sid("S-1-5-21-4-5-6-1001")), Some(200_001));
    }

    #[test]
    fn addresses_and_domains_are_passed_on() {
        let set = of("[server]\nwinbind_domains = [\"A\", \"a.test\"]\n[[interface]]\n\
                      address = \"::ffff:192.0.2.1\"\nspeed = \"10G\"\n");
        assert_eq!(set.passed_on, ["A", "a.test"]);
        let [one] = set.interfaces[..] else { panic!("{:?}", set.interfaces) };
        assert_eq!(one.address.to_string(), "192.0.2.1");
        assert_eq!((one.speed, one.rss), (Some(10_000_000_000), None));
    }
}
