//! Reads a configuration from several texts, and finds all faults in one go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::audit::AuditSection;
use super::cluster::ClusterSection;
use super::fault::{Fault, line_of};
use super::kerberos::KerberosSection;
use super::ldap::LdapSection;
use super::limits;
use super::passwords::PasswordsSection;
use super::quic::QuicSection;
use super::rpc::RpcSection;
use super::schema::{AdminSection, Config, ServerSection, keys};
use super::sections::{is_header, key_of, lines_of};
use super::server_limits::LimitsSection;
use super::traces::TracesSection;

/// Faults in the form of one text that are told.
const FAULTS_MAX: usize = 100;

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong with it. Of a text that is no TOML, the first mistake is told.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        Self::parse_all(&[text])
    }

    /// Reads texts of which the later ones count more: they replace keys of the sections, and add
    /// shares and users.
    ///
    /// # Errors
    /// Everything that is wrong with them. [`Fault::part`] tells the text.
    pub fn parse_all(texts: &[&str]) -> Result<Self, Vec<Fault>> {
        match Self::parse_lenient(texts) {
            (Some(config), faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(faults),
        }
    }

    /// Like [`Self::parse_all`]; keys with faults are left out. None when a text is no TOML.
    pub fn parse_lenient(texts: &[&str]) -> (Option<Self>, Vec<Fault>) {
        if texts.iter().map(|text| text.len()).sum::<usize>() > limits::CONFIG_FILE_BYTES {
            let what = format!("the file is longer than {} bytes", limits::CONFIG_FILE_BYTES);
            return (None, vec![Fault::new(what)]);
        }
        let room = texts.iter().map(|text| text.len() + 1).sum();
        let (mut whole, mut starts) = (String::with_capacity(room), Vec::new());
        for text in texts {
            starts.push(whole.len());
            whole.push_str(text);
            if !text.ends_with('\n') {
                whole.push('\n');
            }
        }
        let mut faults = Vec::new();
        let mut config = Some(Self::default());
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(whole.len());
            let (part, found) = parse_part(&whole, *start..end);
            faults.extend(found);
            config = config.zip(part).map(|(config, part)| config.overlaid(part));
        }
        if let Some(config) = &mut config {
            config.keep_deleted_files();
            config.guard_folders();
            config.find_sites();
            faults.extend(config.faults(&whole));
        }
        let first_lines: Vec<usize> = starts.iter().map(|start| line_of(&whole, *start)).collect();
        faults.iter_mut().for_each(|fault| fault.locate(&first_lines));
        (config, faults)
    }

    /// The configuration with the keys, shares and users of another one added.
    fn overlaid(mut self, later: Self) -> Self {
        // The pattern lists all fields, so that a new section which this function forgets is a
        // compile error.
        let Self {
            server,
            limits,
            audit,
            admin,
            kerberos,
            passwords,
            rpc,
            ldap,
            quic,
            traces,
            cluster,
            idmaps,
            interfaces,
            shares,
            namespaces,
            sites,
            rates,
            storage_policies,
            users,
        } = later;
        self.server = self.server.overlaid(server);
        self.limits = self.limits.overlaid(limits);
        self.audit = self.audit.overlaid(audit);
        self.admin = self.admin.overlaid(admin);
        self.kerberos = self.kerberos.overlaid(kerberos);
        self.passwords = self.passwords.overlaid(passwords);
        self.rpc = self.rpc.overlaid(rpc);
        self.ldap = self.ldap.overlaid(ldap);
        self.quic = self.quic.overlaid(quic);
        self.traces = self.traces.overlaid(traces);
        self.cluster = self.cluster.overlaid(cluster);
        self.idmaps.extend(idmaps);
        self.interfaces.extend(interfaces);
        self.shares.extend(shares);
        self.namespaces.extend(namespaces);
        self.sites.extend(sites);
        self.rates.extend(rates);
        self.storage_policies.extend(storage_policies);
        self.users.extend(users);
        self
    }
}

/// Reads one part of a text. Spans are those of the whole text. A key with a fault is taken out,
/// and the rest is read again.
fn parse_part(whole: &str, part: Range<usize>) -> (Option<Config>, Vec<Fault>) {
    let own = whole.get(part.clone()).unwrap_or_default();
    // A first part is not copied, which a long one would be felt by.
    let mut text = match part.start {
        0 => Cow::Borrowed(own),
        start => Cow::Owned(" ".repeat(start) + own),
    };
    if let Some(config) = Config::of_long_text(&text) {
        return (Some(config), Vec::new());
    }
    let (mut faults, mut gone) = (Vec::new(), Vec::new());
    while faults.len() < FAULTS_MAX {
        let error = match toml::from_str::<Config>(&text) {
            Ok(config) => return (Some(config), faults),
            Err(error) => error,
        };
        // Each faulty key is blanked out, so the next parse may report it as missing, which is no
        // further fault.
        let missing = error.message().strip_prefix("missing field `");
        let missing = missing.and_then(|rest| rest.split('`').next());
        if !missing.is_some_and(|key| gone.iter().any(|known: &String| known == key)) {
            faults.push(Fault::from_toml(whole, &error, &keys()));
        }
        let is_toml = text.parse::<toml::Table>().is_ok();
        let span = error.span().filter(|_| is_toml);
        let taken = span.and_then(|span| take_out(text.to_mut(), &span, missing.is_some()));
        match taken {
            Some(key) => gone.push(key),
            None => break,
        }
    }
    (None, faults)
}

/// Replaces the key at a span, or the whole table, by blanks. Returns the key. None when nothing
/// was left to replace.
fn take_out(text: &mut String, span: &Range<usize>, is_table: bool) -> Option<String> {
    let at = if is_table { span.end } else { span.start };
    let lines: Vec<Range<usize>> = lines_of(text).collect();
    let line = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
    let begins = |range: &Range<usize>| is_header(line(range)) || key_of(line(range)).is_some();
    let last = lines.iter().rposition(|range| range.start <= at)?;
    let is_first = |range: &Range<usize>| {
        if is_table { is_header(line(range)) } else { begins(range) }
    };
    let first = lines.get(..=last)?.iter().rposition(is_first)?;
    let header = is_header(line(lines.get(first)?));
    let key = key_of(line(lines.get(first)?)).unwrap_or_default();
    let rest = lines.get(first + 1..)?;
    let is_end = |range: &Range<usize>| {
        if header { is_header(line(range)) } else { begins(range) && range.start >= at }
    };
    let count = rest.iter().position(is_end).unwrap_or(rest.len());
    let end = lines.get(first + count)?.end;
    let start = lines.get(first)?.start;
    let old = text.get(start..end)?;
    if old.trim().is_empty() {
        return None;
    }
    // The blanks keep the length of the text and its newlines, so that the positions of later
    // faults stay right.
    let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
    let blanks: String = old.bytes().map(blank).collect();
    text.replace_range(start..end, &blanks);
    Some(key)
}

/// A key of which a later text may have another value.
trait Overlay {
    fn overlay(&mut self, later: Self);
}

impl<T> Overlay for Option<T> {
    fn overlay(&mut self, later: Self) {
        if later.is_some() {
            *self = later;
        }
    }
}

impl<T> Overlay for Vec<T> {
    fn overlay(&mut self, later: Self) {
        if !later.is_empty() {
            *self = later;
        }
    }
}

impl<V> Overlay for BTreeMap<String, V> {
    fn overlay(&mut self, later: Self) {
        self.extend(later);
    }
}

impl Overlay for bool {
    fn overlay(&mut self, later: Self) {
        *self |= later;
    }
}

/// Writes `overlaid` for a section: each key of `later` counts before that of `self`.
macro_rules! overlaid {
    ($section:ident: $($key:ident),+ $(,)?) => {
        impl $section {
            fn overlaid(mut self, later: Self) -> Self {
                // The pattern lists all keys, so that a key which this function forgets is a
                // compile error.
                let Self { $($key),+ } = later;
                $(self.$key.overlay($key);)+
                self
            }
        }
    };
}

overlaid!(ServerSection:
    name, comment, sid, model, listen, rdma, min_dialect, max_dialect, encryption, signing, ciphers, signing_algorithms, read_only, state_dir, users_file, user_map, user_map_file, log, log_level, cores, pin_cores, ntlm, winbind_domains, require_mic, anonymous, unknown_users, administrators, domain_admins, account_listing, discovery, discovery_interfaces, workgroup, confinement, confine_to, share_roots, network_namespaces, target_names,
);
overlaid!(LimitsSection:
    max_io, max_transact, connections, connections_per_user, connections_per_address, sessions_per_user, opens_per_user, idle_session_minutes, drain_seconds, memory, pool_per_core,
);
overlaid!(AuditSection: file, journald, syslog);
overlaid!(AdminSection:
    enabled, socket, listen, token_file, manage_token_file, certificate, key, write_configuration, self_service,
);
overlaid!(KerberosSection: keytab, realms, encryption_types, clock_skew, pac);
overlaid!(LdapSection:
    urls, base, bind_dn, password_file, ca, starttls, cleartext, schema, user_base, user_filter,
    group_base, group_filter, user_attribute, nt_hash_attribute, group_attribute, timeout_seconds,
    cache_seconds, away_seconds);
overlaid!(PasswordsSection:
    min_length, max_age, history, refuse_name, refuse_common, common,
);
overlaid!(RpcSection: enabled, listen, port, endpoint_mapper_port);
overlaid!(QuicSection:
    enabled, listen, certificate, key, client_certificates, client_ca, allow, deny, named_pipes,
);
overlaid!(TracesSection: endpoint, sample);
overlaid!(ClusterSection:
    name, node, endpoints, ca, certificate, key, user, password_file, ttl, weight, addresses, grace_seconds, fence,
    separate_names,
);

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(texts: &[&str]) -> Vec<(usize, Option<usize>, String)> {
        let faults = Config::parse_all(texts).unwrap_err();
        faults.into_iter().map(|fault| (fault.part, fault.line, fault.what)).collect()
    }

    #[test]
    fn all_faults_are_told_in_one_go() {
        let text = "[server]\nnmae = \"a\"\ncores = \"two\"\nlisten = [\n  5,\n  \"no where\",\n]\n\
                    encryption = \"requierd\"\n\n[sever]\nx = 1\n\n[limits]\nmax_io = \"1G\"\n\n\
                    [[share]]\npath = \"relative\"\n\n[[share]]\nname = \"a/b\"\npath = \"/b\"\n\n\
                    [[share]]\nname = \"c\"\npath = \"relative\"\nfile_mode = 8\n";
        let found = faults(&[text]);
        let lines: Vec<Option<usize>> = found.iter().map(|(_, line, _)| *line).collect();
        for line in [2, 3, 5, 8, 10, 14, 16, 20, 25] {
            assert!(lines.contains(&Some(line)), "{line} not in {found:?}");
        }
        assert_eq!(found.len(), 9, "{found:?}");
    }

    #[test]
    fn every_section_is_read_from_each_text() {
        let later = "[server]\ndiscovery = \"off\"\n[admin]\nenabled = false\n";
        for texts in [&[later][..], &["[server]\ncores = 1\n", later], &[later, "[limits]\n"]] {
            let config = Config::parse_all(texts).unwrap();
            assert_eq!(config.admin.enabled, Some(false), "{texts:?}");
            assert!(config.server.discovery.is_some(), "{texts:?}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_alone() {
        assert_eq!(faults(&["[server]\nnmae = 1\ncores = = 2\n"]).len(), 1);
    }

    #[test]
    fn later_texts_count_more() {
        let first = "[server]\nname = \"A\"\ncores = 1\nlisten = [\"eth0\"]\n\
                     user_map = { a = \"b\" }\n[[share]]\nname = \"one\"\npath = \"/1\"\n";
        let second = "[server]\nname = \"B\"\nlisten = [\"eth1\", \"eth2\"]\n\
                      user_map = { c = \"d\" }\n[[share]]\nname = \"two\"\npath = \"/2\"\n";
        let config = Config::parse_all(&[first, second]).unwrap();
        assert_eq!(config.server.name.unwrap().as_str(), "B");
        assert_eq!((config.server.cores, config.server.listen.len()), (Some(1), 2));
        assert_eq!((config.shares.len(), config.server.user_map.len()), (2, 2));
    }

    #[test]
    fn faults_tell_their_text() {
        let first = "[[share]]\nname = \"one\"\npath = \"/1\"\n";
        let found = faults(&[first, "# empty\n", "\n[[share]]\nname = \"ONE\"\npath = \"/2\""]);
        assert_eq!(found, [(2, Some(3), String::from("a second share is called ONE"))]);
        let found = faults(&[first, "\n[servr]\n"]);
        assert_eq!((found.len(), found[0].0, found[0].1), (1, 1, Some(2)), "{found:?}");
    }

    /// No key is forgotten where texts are put together.
    #[test]
    fn every_key_of_a_later_text_counts() {
        let text = super::super::tests::EVERY_KEY;
        let sections = text.split("[[share]]").next().unwrap();
        let whole = Config::parse(sections).unwrap();
        let later = Config::parse_all(&["", sections]).unwrap();
        assert_eq!((&whole.server, &whole.admin), (&later.server, &later.admin));
        assert_eq!((&whole.traces, &whole.kerberos), (&later.traces, &later.kerberos));
        assert_eq!(whole.cluster, later.cluster);
        let plain = |config: &Config| {
            let spans = format!("{:?} {:?}", config.limits, config.audit);
            spans.split(|c: char| c.is_ascii_digit()).collect::<String>()
        };
        assert_eq!(plain(&whole), plain(&later));
    }
}
