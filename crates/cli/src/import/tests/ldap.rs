//! `ldapsam`.

use frevo_config::LdapSection;

use super::import;

fn imported(options: &str) -> (LdapSection, String) {
    let (config, _, report) = import(&format!("[global]\n{options}\n[x]\npath = /srv/x\n"));
    (config.ldap, report)
}

#[test]
fn a_directory_of_samba() {
    let (ldap, report) = imported(
        "passdb backend = ldapsam:\"ldap://dir1.lan ldaps://dir2.lan\"\n\
         ldap suffix = dc=lan\nldap user suffix = ou=Users\nldap group suffix = ou=Groups\n\
         ldap machine suffix = ou=Machines\nldap admin dn = cn=admin,dc=lan\nldap ssl = off\n\
         ldap timeout = 9\nldap passwd sync = yes",
    );
    let urls: Vec<String> = ldap.urls.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["ldap://dir1.lan:389", "ldaps://dir2.lan:636"]);
    assert_eq!(ldap.base.as_deref(), Some("dc=lan"));
    assert_eq!((ldap.user_base(), ldap.group_base()), ("ou=Users,dc=lan", "ou=Groups,dc=lan"));
    assert_eq!(ldap.bind_dn.as_deref(), Some("cn=admin,dc=lan"));
    assert_eq!((ldap.timeout_seconds(), ldap.starts_tls()), (9, true));
    assert!(report.contains("/etc/frevo/ldap.password"), "{report}");
    assert!(report.contains("ldap ssl") && report.contains("StartTLS"), "{report}");
    assert!(!report.contains("pdbedit"), "{report}");
}

#[test]
fn a_directory_on_this_host_needs_no_tls() {
    let (ldap, report) = imported("passdb backend = ldapsam\nldap suffix = dc=lan\nldap ssl = no");
    assert_eq!(ldap.urls.len(), 1);
    assert!(!ldap.starts_tls() && ldap.urls[0].is_local(), "{report}");
}

#[test]
fn other_accounts_have_no_section() {
    let (ldap, report) = imported("passdb backend = tdbsam\nldap suffix = dc=lan");
    assert!(!ldap.is_on() && report.contains("pdbedit"), "{report}");
    let (ldap, report) = imported("passdb backend = ldapsam:ldap://dir.lan");
    assert!(!ldap.is_on() && report.contains("ldap suffix"), "{report}");
}
