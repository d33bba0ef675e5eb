//! TLS with certificates of both sides, and names with passwords.

use std::path::Path;
use std::process::{Command, Stdio};

use frevo_etcd::client::{Account, Client, Options, Tls};
use frevo_etcd::engine::Engine;
use frevo_etcd::types::{Fault, Revision};
use zeroize::Zeroizing;

use crate::support::{Cluster, client, grant, one, range, set, txn, watch};

/// Runs openssl in a folder.
fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority, and certificates that it signs: of members for the name etcd.test, one of which
/// is also called root, and of two clients, one without a common name. Another authority signs a third
/// client's.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "other"] {
        let files = format!("-keyout {authority}.key -out {authority}.pem -subj /CN={authority}");
        openssl(folder, &format!("req -x509 {key} {files} -days 2"));
    }
    std::fs::write(folder.join("member.ext"), "subjectAltName=DNS:etcd.test\n").unwrap();
    std::fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    for (name, authority, kind) in [
        ("member", "ca", "member"),
        ("root", "ca", "member"),
        ("client", "ca", "client"),
        ("unnamed", "ca", "client"),
        ("stranger", "other", "client"),
    ] {
        let subject = if name == "unnamed" { "/O=frevo".into() } else { format!("/CN={name}") };
        openssl(folder, &format!("req {key} -keyout {name}.key -out {name}.csr -subj {subject}"));
        let signer = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial");
        let files = format!("-in {name}.csr -out {name}.pem -extfile {kind}.ext");
        openssl(folder, &format!("x509 -req {files} {signer} -days 2"));
    }
}

fn tls(folder: &Path, own: Option<&str>) -> Tls {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    Tls {
        authorities: read("ca.pem"),
        certificate: own.map(|name| read(&format!("{name}.pem"))),
        key: own.map(|name| Zeroizing::new(read(&format!("{name}.key")))),
        server_name: Some("etcd.test".into()),
    }
}

/// Arguments of a member that has a certificate and asks clients for theirs.
fn with_certificates(folder: &Path, name: &str) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    let pairs =
        [("--cert-file", certificate), ("--key-file", key), ("--trusted-ca-file", file("ca.pem"))];
    let mut more = vec!["--client-cert-auth".into()];
    more.extend(pairs.into_iter().flat_map(|(name, value)| [name.into(), value]));
    more
}

#[tokio::test]
async fn both_sides_show_their_certificates() {
    if crate::support::program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = folder.path().to_path_buf();
    let more = with_certificates(&path, "member");
    let Some(cluster) = Cluster::start_with(1, "https", folder, more) else { return };
    let with = |tls| client(Options { tls: Some(tls), ..cluster.patient() });
    let good = with(tls(&path, Some("client")));
    cluster.answers(&good).await;
    let revision = txn(&good, set("w/a", "1")).await.unwrap().revision;
    grant(&good, 1).await.unwrap();
    let (mut told, _watching) = watch(&good, "w/", Revision(0));
    assert_eq!(told.revisions(1).await, [revision.0]);
    // No certificate, one of another authority, a member of another name, one of another authority.
    let other_name = Tls { server_name: Some("db.test".into()), ..tls(&path, Some("client")) };
    let other_authority = Tls {
        authorities: std::fs::read(path.join("other.pem")).unwrap(),
        ..tls(&path, Some("client"))
    };
    for bad in [tls(&path, None), tls(&path, Some("stranger")), other_name, other_authority] {
        let read = range(&with(bad), one("w/a")).await;
        assert!(matches!(read, Err(Fault::Unavailable(_))), "{read:?}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_before_the_first_request() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let endpoint = || vec![frevo_etcd::client::Endpoint::parse("https://127.0.0.1:1").unwrap()];
    let make = |tls| {
        let options = Options { tls, ..Options::new(endpoint()) };
        Client::new(options, tokio::runtime::Handle::current()).map(drop).map_err(|bad| bad.0)
    };
    let good = || tls(folder.path(), Some("client"));
    assert_eq!(make(Some(good())), Ok(()));
    let bad = [
        (None, "https://127.0.0.1:1 needs a certificate of its authority."),
        (
            Some(Tls { authorities: Vec::new(), ..good() }),
            "There is no certificate in the file of the authorities for etcd.",
        ),
        (
            Some(Tls { key: None, ..good() }),
            "A client's certificate of etcd needs its key, and a key its certificate.",
        ),
        (
            Some(Tls { key: tls(folder.path(), Some("stranger")).key, ..good() }),
            "The client's key for etcd is not that of its certificate.",
        ),
        (
            Some(Tls { server_name: Some("a b".into()), ..good() }),
            "`a b` is not a name of a certificate.",
        ),
    ];
    for (tls, why) in bad {
        assert_eq!(make(tls), Err(why.into()));
    }
    let unreadable = Tls { key: Some(Zeroizing::new(b"no key".to_vec())), ..good() };
    assert!(
        make(Some(unreadable)).unwrap_err().starts_with("The client's key for etcd cannot be read")
    );
}

#[tokio::test]
async fn a_name_and_a_password_are_shown_and_the_token_is_renewed() {
    // A token expires two seconds after its last use.
    let more = vec!["--auth-token-ttl".into(), "2".into()];
    let folder = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start_with(1, "http", folder, more) else { return };
    let nameless = cluster.client();
    cluster.answers(&nameless).await;
    let account =
        |password: &str| Account { name: "root".into(), password: Zeroizing::new(password.into()) };
    let with = |password| client(Options { account: Some(account(password)), ..cluster.patient() });
    let good = with("secret");
    // As long as authentication is off in etcd, a client with a name and a password is served.
    txn(&good, set("w/a", "1")).await.unwrap();
    cluster.enable_accounts().await;
    let first = txn(&good, set("w/a", "2")).await.unwrap().revision;
    let (mut told, _watching) = watch(&good, "w/", first);
    for at in 0..3 {
        // The token ends meanwhile.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let next = txn(&good, set("w/a", &at.to_string())).await.unwrap().revision;
        assert_eq!(told.revisions(1).await, [next.0], "{at}");
    }
    let refused = range(&nameless, one("w/a")).await;
    assert_eq!(refused, Err(Fault::Refused("it wants a name and a password".into())));
    let refused = range(&with("wrong"), one("w/a")).await;
    assert!(
        matches!(&refused, Err(Fault::Refused(why)) if why.contains("invalid user ID or password"))
    );
    let (mut told, _watching) = watch(&nameless as &dyn Engine, "w/", first);
    assert!(matches!(told.next().await, Err(Fault::Refused(_))));
    assert!(told.is_over().await);
    let words = format!("{good:?}");
    assert!(words.contains("root") && !words.contains("secret"), "{words}");
}

/// The gateway shows the member's certificate to its member. The name in it is no account: a request
/// without a token is nobody's.
#[tokio::test]
async fn the_name_in_a_members_certificate_is_no_account() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let Some(mut cluster) = Cluster::start_with(1, "http", folder, Vec::new()) else { return };
    cluster.answers(&cluster.client()).await;
    cluster.enable_accounts().await;
    certificates(&path);
    cluster.restart_with("https", with_certificates(&path, "root"));
    let account = || Account { name: "root".into(), password: Zeroizing::new("secret".into()) };
    let secure = |own| Options { tls: Some(tls(&path, Some(own))), ..cluster.patient() };
    let with_account = |own| client(Options { account: Some(account()), ..secure(own) });
    let good = with_account("unnamed");
    cluster.answers(&good).await;
    txn(&good, set("w/a", "1")).await.unwrap();
    let nameless = client(secure("unnamed"));
    let refused = Fault::Refused("it wants a name and a password".into());
    assert_eq!(range(&nameless, one("w/a")).await, Err(refused.clone()));
    assert_eq!(txn(&nameless, set("w/a", "2")).await, Err(refused));
    // etcd's gateway refuses clients whose certificate has a common name.
    let read = range(&with_account("client"), one("w/a")).await;
    assert!(matches!(&read, Err(Fault::Refused(why)) if why.contains("CommonName")), "{read:?}");
}
