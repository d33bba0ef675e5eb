//! `krb5.conf`, as MIT Kerberos reads it: the settings that a client needs.

use std::path::{Path, PathBuf};

use frevo_auth::kerberos::EncryptionType;

use super::files;
use crate::limits::{KRB5_CONF_BYTES, KRB5_CONF_FILES, KRB5_CONF_LINES};

/// The files without `KRB5_CONFIG`.
const DEFAULT: &str = "/etc/krb5.conf";

/// The settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Krb5Conf {
    /// `[libdefaults] default_realm`
    pub(super) default_realm: Option<String>,
    /// `[libdefaults] dns_lookup_kdc`; true without it.
    pub(super) dns_lookup_kdc: Option<bool>,
    /// `[libdefaults] default_ccache_name`
    pub(super) default_ccache_name: Option<String>,
    /// `[libdefaults] kcm_socket`
    pub(super) kcm_socket: Option<String>,
    /// `[libdefaults] permitted_enctypes`
    pub(super) permitted_enctypes: Option<String>,
    /// `[realms] REALM = { kdc = HOST }`, in their order.
    pub(super) kdcs: Vec<(String, String)>,
    /// `[domain_realm]`
    pub(super) domain_realm: Vec<(String, String)>,
}

impl Krb5Conf {
    /// Reads the files of `KRB5_CONFIG`, or `/etc/krb5.conf`. A file that does not exist or cannot
    /// be read is left out.
    pub(super) fn load() -> Self {
        let named = std::env::var("KRB5_CONFIG").unwrap_or_else(|_| DEFAULT.into());
        Self::of(named.split(':').map(Path::new))
    }

    fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut reader = Reader { conf: Self::default(), files: KRB5_CONF_FILES };
        for path in paths {
            reader.file(path);
        }
        reader.conf
    }

    /// Returns the KDCs of a realm, as they are named.
    pub(super) fn kdcs<'a>(&'a self, realm: &'a str) -> impl Iterator<Item = &'a str> {
        self.kdcs.iter().filter(move |(of, _)| of == realm).map(|(_, kdc)| kdc.as_str())
    }

    /// Has one KDC for a realm, whatever the files and DNS say.
    pub(super) fn name_kdc(&mut self, realm: &str, host: &str, port: u16) {
        self.kdcs.retain(|(of, _)| of != realm);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        self.kdcs.push((realm.into(), format!("{host}:{port}")));
    }

    /// Returns the realm of a host, by its name or by the longest domain that it is in. `None` lets
    /// the KDC find it.
    pub(super) fn realm_of(&self, host: &str) -> Option<&str> {
        let named = |name: &str| {
            let mut all = self.domain_realm.iter();
            all.find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, realm)| realm.as_str())
        };
        let mut name = host;
        loop {
            if let Some(realm) = named(name) {
                return Some(realm);
            }
            // Each step makes the next name to try: after `a.b.c` come `.b.c`, `b.c`, `.c` and `c`.
            name = match name.strip_prefix('.') {
                Some(rest) => rest,
                None => name.find('.').and_then(|at| name.get(at..))?,
            };
        }
    }

    /// Returns the encryption types that may be used, the best first: those of AES, unless
    /// `permitted_enctypes` says otherwise.
    pub(super) fn etypes(&self) -> Vec<EncryptionType> {
        let aes = || {
            let all = EncryptionType::ALL.into_iter();
            all.filter(|etype| *etype != EncryptionType::Rc4Hmac).collect::<Vec<_>>()
        };
        let Some(list) = &self.permitted_enctypes else { return aes() };
        let mut found: Vec<EncryptionType> = Vec::new();
        for word in list.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            let (is_left_out, name) = match word.split_at_checked(1) {
                Some(("-", name)) => (true, name),
                Some(("+", name)) => (false, name),
                _ => (false, word),
            };
            let named = match name.to_ascii_lowercase().as_str() {
                "default" | "aes" => aes(),
                "rc4" | "rc4-hmac" | "arcfour-hmac" | "arcfour-hmac-md5" => {
                    vec![EncryptionType::Rc4Hmac]
                }
                name => etype(name).into_iter().collect(),
            };
            found.retain(|etype| !named.contains(etype));
            if !is_left_out {
                found.extend(named);
            }
        }
        found
    }

    /// Takes a relation of a section; the first value of a setting counts.
    fn set(&mut self, section: &str, group: Option<&str>, name: &str, value: &str) {
        let first = |setting: &mut Option<String>| {
            setting.get_or_insert_with(|| value.into());
        };
        match (section, group, name) {
            ("libdefaults", None, "default_realm") => first(&mut self.default_realm),
            ("libdefaults", None, "default_ccache_name") => first(&mut self.default_ccache_name),
            ("libdefaults", None, "kcm_socket") => first(&mut self.kcm_socket),
            ("libdefaults", None, "permitted_enctypes") => first(&mut self.permitted_enctypes),
            ("libdefaults", None, "dns_lookup_kdc") => {
                self.dns_lookup_kdc.get_or_insert_with(|| is_true(value));
            }
            ("realms", Some(realm), "kdc") => self.kdcs.push((realm.into(), value.into())),
            ("domain_realm", None, domain) => self.domain_realm.push((domain.into(), value.into())),
            _ => {}
        }
    }
}

/// The encryption type of a name, with MIT's other names.
fn etype(name: &str) -> Option<EncryptionType> {
    let name = match name {
        "aes256-cts" | "aes256-sha1" => "aes256-cts-hmac-sha1-96",
        "aes128-cts" | "aes128-sha1" => "aes128-cts-hmac-sha1-96",
        "aes256-sha2" => "aes256-cts-hmac-sha384-192",
        "aes128-sha2" => "aes128-cts-hmac-sha256-128",
        name => name,
    };
    EncryptionType::ALL.into_iter().find(|etype| etype.name() == name)
}

fn is_true(value: &str) -> bool {
    ["y", "yes", "true", "t", "1", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

struct Reader {
    conf: Krb5Conf,
    /// Files that may still be read.
    files: usize,
}

impl Reader {
    fn file(&mut self, path: &Path) {
        let Some(left) = self.files.checked_sub(1) else { return };
        self.files = left;
        let Ok(bytes) = files::read(path, KRB5_CONF_BYTES) else { return };
        self.text(&String::from_utf8_lossy(&bytes));
    }

    /// Reads the files of a directory whose names MIT takes.
    fn directory(&mut self, path: &Path) {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        let mut names: Vec<PathBuf> = Vec::new();
        for entry in entries.flatten().take(4 * KRB5_CONF_FILES) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_plain =
                name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
            if is_plain || (name.ends_with(".conf") && !name.starts_with('.')) {
                names.push(entry.path());
            }
        }
        names.sort();
        for name in names {
            self.file(&name);
        }
    }

    fn text(&mut self, text: &str) {
        let mut section = String::new();
        // `groups` is the stack of open groups. Only the name of the outermost group matters.
        let mut groups: Vec<String> = Vec::new();
        for line in text.lines().take(KRB5_CONF_LINES) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(path) = directive(line, "include") {
                self.file(path);
            } else if let Some(path) = directive(line, "includedir") {
                self.directory(path);
            } else if let Some(name) = line.strip_prefix('[') {
                section = name.split(']').next().unwrap_or_default().trim().to_ascii_lowercase();
                groups.clear();
            } else if line.starts_with('}') {
                groups.pop();
            } else if let Some((name, value)) = line.split_once('=') {
                let (name, value) = (name.trim().trim_end_matches('*'), value.trim());
                if value.starts_with('{') {
                    groups.push(name.into());
                    continue;
                }
                let value = unquoted(value);
                if groups.len() < 2 {
                    let group = groups.first().map(String::as_str);
                    self.conf.set(&section, group, name, value);
                }
            }
        }
    }
}

/// The path of `include FILE`.
fn directive<'a>(line: &'a str, name: &str) -> Option<&'a Path> {
    let path = line.strip_prefix(name)?.strip_prefix([' ', '\t'])?.trim();
    (!path.starts_with('=')).then(|| Path::new(path))
}

fn unquoted(value: &str) -> &str {
    match value.strip_prefix('"') {
        Some(rest) => rest.split('"').next().unwrap_or_default(),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> Krb5Conf {
        let mut reader = Reader { conf: Krb5Conf::default(), files: 0 };
        reader.text(text);
        reader.conf
    }

    const TEXT: &str = "
# A comment
[libdefaults]
    default_realm = A.TEST
    default_realm = B.TEST
    dns_lookup_kdc = no
    default_ccache_name = \"DIR:/run/user/%{uid}/krb5cc\"
[realms]
    A.TEST = {
        kdc = one.a.test
        ; another
        kdc = tcp/two.a.test:89
        v4_name_convert = {
            kdc = not.this.one
        }
        admin_server = one.a.test
    }
    B.TEST* = {
      kdc = one.b.test
    }
[domain_realm]
    .a.test = A.TEST
    files.a.test = B.TEST
    b.test = B.TEST
[logging]
    kdc = FILE:/var/log/krb5kdc.log
";

    #[test]
    fn a_file_of_mit() {
        let conf = conf(TEXT);
        assert_eq!(conf.default_realm.as_deref(), Some("A.TEST"));
        assert_eq!(conf.dns_lookup_kdc, Some(false));
        assert_eq!(conf.default_ccache_name.as_deref(), Some("DIR:/run/user/%{uid}/krb5cc"));
        let kdcs = |realm| conf.kdcs(realm).collect::<Vec<_>>();
        assert_eq!(kdcs("A.TEST"), ["one.a.test", "tcp/two.a.test:89"]);
        assert_eq!(kdcs("B.TEST"), ["one.b.test"]);
        for (host, realm) in [
            ("files.a.test", Some("B.TEST")),
            ("other.a.test", Some("A.TEST")),
            ("OTHER.A.TEST", Some("A.TEST")),
            ("x.y.a.test", Some("A.TEST")),
            ("a.test", None),
            ("b.test", Some("B.TEST")),
            ("x.b.test", Some("B.TEST")),
            ("c.test", None),
        ] {
            assert_eq!(conf.realm_of(host), realm, "{host}");
        }
    }

    #[test]
    fn rc4_is_used_only_if_it_is_named() {
        use EncryptionType::*;
        assert!(!conf("").etypes().contains(&Rc4Hmac));
        assert_eq!(conf("").etypes().len(), 4);
        let of = |list: &str| conf(&format!("[libdefaults]\npermitted_enctypes = {list}")).etypes();
        assert_eq!(of("aes128-cts, arcfour-hmac"), [Aes128Sha1, Rc4Hmac]);
        assert_eq!(of("aes256-cts-hmac-sha384-192 des3"), [Aes256Sha2]);
        assert_eq!(of("DEFAULT +rc4").len(), 5);
        assert_eq!(of("aes -aes256-cts -aes128-cts").len(), 2);
    }

    #[test]
    fn files_include_others_a_limited_number_of_times() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let at = dir.path().display();
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("d/10-realm"), "[libdefaults]\ndefault_realm = D.TEST").unwrap();
        std::fs::write(path("d/x.conf"), "[realms]\nD.TEST = {\nkdc = d.test\n}").unwrap();
        std::fs::write(path("d/x.conf~"), "[libdefaults]\ndns_lookup_kdc = no").unwrap();
        std::fs::write(path("d/.x.conf"), "[libdefaults]\ndns_lookup_kdc = no").unwrap();
        let text = format!("includedir {at}/d\ninclude {at}/self\n");
        std::fs::write(path("self"), text).unwrap();
        let conf = Krb5Conf::of([path("self"), path("none")].iter().map(PathBuf::as_path));
        assert_eq!(conf.default_realm.as_deref(), Some("D.TEST"));
        assert_eq!(conf.dns_lookup_kdc, None);
        // The file includes itself, so the names are read again and again, until the limit on files
        // is reached.
        assert!(conf.kdcs("D.TEST").count() < KRB5_CONF_FILES);
    }

    #[test]
    fn odd_texts() {
        for text in
            ["[", "[libdefaults", "= =", "}\n}\n", "a = {", "include\ninclude =", "\0\u{fffd}"]
        {
            assert_eq!(conf(text), Krb5Conf::default(), "{text:?}");
        }
    }
}
