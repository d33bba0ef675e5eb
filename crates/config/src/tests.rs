use super::*;

fn faults(text: &str) -> Vec<String> {
    Config::parse(text).unwrap_err().iter().map(ToString::to_string).collect()
}

fn fault(text: &str) -> String {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.into_iter().next().unwrap()
}

const SHARE: &str = "[[share]]\nname = \"photos\"\npath = \"/srv/photos\"\n";

#[test]
fn an_empty_file_is_a_server_without_shares() {
    let config = Config::parse("").unwrap();
    assert!(config.shares.is_empty() && config.server == ServerSection::default());
}

/// A file with every key.
pub(super) const EVERY_KEY: &str = r#"
        [server]
        name = "box"
        comment = "the box"
        sid = "S-1-5-21-1-2-3"
        model = "MacPro"
        listen = ["eth0", "[::1]:4450"]
        min_dialect = "2.1"
        max_dialect = "3.1.1"
        rdma = false
        encryption = "offered"
        signing = "offered"
        ciphers = ["aes-256-gcm"]
        signing_algorithms = ["aes-gmac", "aes-cmac"]
        read_only = true
        state_dir = "/var/lib/frevo"
        users_file = "/etc/frevo/users"
        user_map = { "ann smith" = "ann" }
        user_map_file = "/etc/frevo/usermap"
        log = "json"
        log_level = "debug"
        cores = 2
        pin_cores = true
        ntlm = false
        winbind_domains = []
        require_mic = true
        anonymous = true
        unknown_users = "refuse"
        administrators = ["ann", "@staff", '@EXAMPLE\Storage Admins', "@S-1-5-21-1-2-3-1300"]
        domain_admins = false
        account_listing = "users"
        target_names = ["box.example.com"]
        discovery = "off"
        discovery_interfaces = ["eth0"]
        workgroup = "LAB"
        confinement = "off"
        confine_to = ["/srv"]
        share_roots = ["/srv/shares"]
        network_namespaces = true

        [limits]
        max_io = "1M"
        max_transact = 65536
        connections = 1000
        connections_per_user = 100
        connections_per_address = 500
        sessions_per_user = 100
        opens_per_user = 10000
        idle_session_minutes = 30
        drain_seconds = 30
        memory = "1G"
        pool_per_core = "64M"

        [audit]
        file = "/var/log/frevo/audit.log"
        journald = true
        syslog = true

        [admin]
        enabled = true
        socket = "/run/frevo/admin"
        listen = "127.0.0.1:9445"
        token_file = "/etc/frevo/token"
        manage_token_file = "/etc/frevo/manage-token"
        certificate = "/etc/frevo/admin.crt"
        key = "/etc/frevo/admin.key"
        write_configuration = true
        self_service = true

        [passwords]
        min_length = 12
        max_age = "90 days"
        history = 5
        refuse_name = true
        refuse_common = true
        common = "/etc/frevo/common-passwords"

        [quic]
        enabled = true
        listen = [":4433"]
        certificate = "/etc/frevo/quic.crt"
        key = "/etc/frevo/quic.key"
        client_certificates = "required"
        client_ca = "/etc/frevo/ca.crt"
        allow = ["00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"]
        deny = ["ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"]
        named_pipes = true
        [rpc]
        enabled = true
        listen = ["127.0.0.1"]
        port = 49152
        endpoint_mapper_port = 135
        [kerberos]
        keytab = "/etc/frevo/frevo.keytab"
        realms = ["EXAMPLE.COM"]
        encryption_types = ["aes256-cts-hmac-sha1-96"]
        clock_skew = 60
        pac = "checked"

        [ldap]
        urls = ["ldaps://dir.example.org", "ldapi:/run/slapd/ldapi"]
        base = "dc=example,dc=org"
        bind_dn = "cn=frevo,dc=example,dc=org"
        password_file = "/etc/frevo/ldap.password"
        ca = "/etc/frevo/ldap-ca.pem"
        starttls = true
        cleartext = false
        schema = "samba"
        user_base = "ou=people,dc=example,dc=org"
        user_filter = "(&(objectClass=sambaSamAccount)(uid={user}))"
        group_base = "ou=groups,dc=example,dc=org"
        group_filter = "(&(objectClass=posixGroup)(memberUid={user}))"
        user_attribute = "uid"
        nt_hash_attribute = "sambaNTPassword"
        group_attribute = "cn"
        timeout_seconds = 5
        cache_seconds = 300
        away_seconds = 3600

        [traces]
        endpoint = "http://127.0.0.1:4318/v1/traces"
        sample = 0.5

        [[idmap]]
        domain_sid = "S-1-5-21-1-2-3"
        range = "100000-199999"
        base_rid = 500

        [[interface]]
        address = "192.0.2.1"
        speed = "10G"
        rss = true
        rdma = false

        [cluster]
        name = "nas"
        node = "n1"
        endpoints = ["https://192.0.2.1:2379", "https://192.0.2.2:2379"]
        ca = "/etc/frevo/etcd-ca.pem"
        certificate = "/etc/frevo/etcd.pem"
        key = "/etc/frevo/etcd.key"
        user = "frevo"
        password_file = "/etc/frevo/etcd.password"
        ttl = 3
        weight = 2
        addresses = ["192.0.2.30/24"]
        grace_seconds = 20
        fence = "nfs"
        separate_names = false

        [[share]]
        name = "photos"
        cluster = true
        group = "media"
        addresses = ["192.0.2.20/24%eth0"]
        fence = "fuse"
        weight = 3
        audit = ["open", "create", "write", "rename", "delete", "acl", "attributes"]
        path = "/srv/photos"
        comment = "pictures"
        read_only = true
        encrypt = true
        compress = "asked"
        hidden = true
        continuous = true
        hide_unreadable = true
        inherited_as_set = true
        allow = ["ann", "@staff"]
        deny = ["bob"]
        run_as = "user"
        force_group = "media"
        read_list = ["carl"]
        write_list = ["@it"]
        hosts_allow = ["192.0.2.0/24"]
        hosts_deny = ["::/0"]
        access_list = ["deny:S-1-5-11:full", "allow:S-1-1-0:read"]
        case_sensitive = true
        file_mode = "0644"
        directory_mode = 0o755
        force_file_mode = "0060"
        force_directory_mode = 0o2070
        inherit_modes = true
        inherit_owner = true
        inherit_acls = true
        map_archive = true
        map_system = true
        map_hidden = true
        map_readonly = true
        dos_filemode = true
        dos_attributes = false
        hide_dot_files = false
        follow_symlinks = true
        snapshots = ".snapshots/%N/snapshot"
        host_changes = false
        posix = false
        streams = "folder"
        time_machine = true
        time_machine_max_size = "2T"
        change_notify = false
        max_file_size = "100G"
        late_write_times = true
        cache_unbuffered = false
        forward_slashes = true
        short_names = true
        list_ea_sizes = true
        hide_files = ["*.tmp", "desktop.ini"]
        veto = ["*.key"]
        max_connections = 10
        off_core = true
        level2_oplocks = false
        posix_locks = true
        nt_acls = "posix"

        [[share]]
        name = "other"
        path = "/srv/other"
        users = ["ann"]
        force_user = "media"
        samba_links = true
        recycle = { folder = ".bin", keep_days = 7, max_size = "10G", max_file_size = "1G", exclude = ["*.tmp", "cache"], versions = false }
        snapshots = { provider = "btrfs", schedule = "hourly keep 24, daily keep 30" }
        keep_deleted = "30 days"

        [[share]]
        name = "scans"
        path = "/srv/scans"
        guest = "nobody"
        guest_write = true

        [[share]]
        name = "archive"
        path = "/srv/archive"
        worm = { after = "10 minutes", retain = "7 years" }
        brake = { action = "hold", files_per_minute = 40, files_per_hour = 200, renames_per_minute = 100, deletions_per_minute = 2000, slow_to = 1, lasts = "1 hour", except = ["backup"], except_paths = ["/vm"] }

        [[share]]
        name = "homes"
        path = "/srv/homes/{user}"
        home = { mode = "0700", skeleton = "/etc/skel" }

        [[share]]
        name = "inbox"
        path = "/srv/inbox"
        index = true
        spotlight = true
        index_files = 500000
        scan = { service = "clamd:/run/clamav/clamd.ctl", when = ["open", "close"], found = "quarantine", quarantine = "/var/lib/quarantine", suffix = ".infected", max_size = "100M", timeout_seconds = 30, unscanned = "deny", at_once = 4, exclude = ["*.iso"] }

        [[namespace]]
        name = "files"
        comment = "All files"
        state = "online"
        ttl = 300
        ordering = "site"
        failback = true
        probe_seconds = 10
        allow = ["ann"]

        [[namespace.link]]
        path = 'teams\one'
        targets = ['\\one\data', { path = '\\two\data', state = "offline", priority = "low", rank = 1 }]
        comment = "Team one"
        state = "online"
        ttl = 1800
        ordering = "priority"
        failback = true
        interlink = false

        [[site]]
        name = "berlin"
        networks = ["10.1.0.0/16"]

        [[rate]]
        name = "backups"
        shares = ["photos"]
        users = ["ann", "@staff"]
        networks = ["10.2.0.0/16"]
        each = "user"
        read = "200M"
        write = "100M"
        operations = 2000
        burst_milliseconds = 200
        weight = 3

        [[storage_qos]]
        name = "gold"
        id = "04b4f24e-b3e9-4594-adaa-e327528de54b"
        iops = 5000
        bandwidth = "100M"

        [[user]]
        name = "ann"
        password_file = "/etc/frevo/ann.password"
    "#;

#[test]
fn every_key_can_be_set() {
    let text = EVERY_KEY;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.server.name.unwrap().as_str(), "BOX");
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.limits.max_io.unwrap().get_ref().0, 1 << 20);
    assert!(config.shares[0].snapshots.is_some());
    assert_eq!(config.shares[1].allow[0].as_str(), "ann");
    assert_eq!(config.shares[0].file_mode, Some(Mode(0o644)));
    assert_eq!(config.shares[0].directory_mode, Some(Mode(0o755)));
    // The text above must contain every key of every section, so that each key is tested.
    for (section, keys) in keys() {
        assert!(!keys.is_empty(), "{section}");
        for key in keys {
            assert!(
                text.contains(&format!("{key} =")) || text.contains(&format!("[{key}]")),
                "{key}"
            );
        }
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest() {
    assert_eq!(
        fault("[server]\nname = \"A\"\nsingning = \"required\"\n"),
        "line 3: unknown key `singning` in [server]; did you mean `signing`?"
    );
    assert_eq!(
        fault(&format!("{SHARE}readonly = true\n")),
        "line 4: unknown key `readonly` in [[share]]; did you mean `read_only`?"
    );
    assert_eq!(
        fault("[server]\nhide_dot_files = true\n"),
        "line 2: unknown key `hide_dot_files` in [server]; `hide_dot_files` is a key of [[share]]"
    );
    assert!(fault("[sever]\n").contains("did you mean `server`?"));
    assert!(fault("[server]\nprinting = 1\n").contains("the keys here are name, comment"));
}

#[test]
fn a_wrong_value_is_named_with_its_line() {
    let cases = [
        (
            "[server]\nencryption = \"requierd\"\n",
            "line 2: `encryption` must be \"required\", \"offered\" or \"off\", not \"requierd\"; did you mean \"required\"?",
        ),
        (
            "[server]\nmin_dialect = \"SMB3\"\n",
            "line 2: `min_dialect` must be \"2.0.2\", \"2.1\", \"3.0\", \"3.0.2\" or \"3.1.1\", not \"SMB3\"",
        ),
        ("[server]\n\nlisten = [\"no where\"]\n", "line 3: \"no where\" is not an address"),
        (
            "[server]\ncores = \"two\"\n",
            "line 2: `cores` must be a whole number, not the text \"two\"",
        ),
        ("[server]\nlisten = \"127.0.0.1\"\n", "line 2: `listen` is a list; write [\"127.0.0.1\"]"),
        ("[server]\nlisten = 5\n", "line 2: `listen` must be a list, not the number 5"),
        (
            "[server]\nlisten = [\n  5]\n",
            "line 3: each value of `listen` must be a text in quotes, not the number 5",
        ),
        (
            "[server]\nciphers = [\"aes-128-gcm\", \"des\"]\n",
            "line 2: each value of `ciphers` must be \"aes-128-gcm\", ",
        ),
        (
            "[server]\nread_only = \"yes\"\n",
            "line 2: `read_only` must be true or false, not the text \"yes\"",
        ),
        ("[server]\nname = true\n", "line 2: `name` must be a text in quotes, not true"),
        ("[limits]\ndrain_seconds = -1\n", "line 2: `drain_seconds` must be 0 or more"),
        (
            "[limits]\nconnections = 1.5\n",
            "line 2: `connections` must be a whole number, not the number 1.5",
        ),
        ("server = 1\n", "line 1: `server` must be a section, not the number 1"),
        ("[server]\nname = \"a name with blanks\"\n", "line 2: the server name"),
        (
            "[[share]]\nname = \"a/b\"\npath = \"/x\"\n",
            "line 2: the share name \"a/b\" contains '/'",
        ),
        ("[[share]]\npath = \"/x\"\n", "line 1: [[share]] needs the key `name`"),
        ("[[share]]\nname = \"a\"\npath = \"x\"\n", "line 3: the path x is not absolute"),
        ("[limits]\nmax_io = \"1P\"\n", "line 2: \"1P\" is not a size"),
        ("[limits]\nmax_io = \"1G\"\n", "line 2: max_io must be from 65536 to 8388608 bytes"),
        ("[limits]\nmax_io = 65535\n", "line 2: max_io must be from"),
        ("[limits]\nconnections = 0\n", "connections must be at least 1"),
        ("[limits]\nopens_per_user = 0\n", "opens_per_user must be at least 1"),
        ("[limits]\nconnections_per_user = 0\n", "connections_per_user must be at least 1"),
        ("[limits]\nconnections_per_address = 0\n", "connections_per_address must be at least 1"),
        ("[limits]\nsessions_per_user = 0\n", "sessions_per_user must be at least 1"),
        (
            "[limits]\nidle_session_minutes = 527041\n",
            "idle_session_minutes must be at most 527040 (a year)",
        ),
        ("[server]\nlisten = [\n", "line "),
        ("[server\n", "line 1: "),
    ];
    for (text, start) in cases {
        let fault = fault(text);
        assert!(fault.starts_with(start), "{fault:?} for {text:?}");
    }
    let file_mode = fault(&format!("{SHARE}file_mode = 6440\n"));
    assert!(file_mode.contains("with 0o"), "{file_mode}");
}

#[test]
fn what_contradicts_itself_is_found_all_at_once() {
    let text = format!("{SHARE}{}", SHARE.replace("photos\"\npath", "PHOTOS\"\npath"));
    assert!(fault(&text).starts_with("line 5: a second share is called PHOTOS"));
    let user = "[[user]]\nname = \"ann\"\npassword_file = \"/p\"\n";
    assert!(
        fault(&format!("{user}{}", user.replace("ann", "Ann"))).contains("line 5: a second user")
    );
    let text = "[server]\nmin_dialect = \"3.1.1\"\nmax_dialect = \"2.1\"\nciphers = []\nencryption = \"required\"\n";
    assert_eq!(faults(text).len(), 3);
}

#[test]
fn bits_of_modes_and_owners_need_files_without_stored_lists() {
    for (keys, what) in [
        ("map_hidden = true", "need dos_attributes = false"),
        ("map_archive = true\ndos_attributes = false", "need nt_acls"),
        ("map_readonly = true", "need dos_attributes = false"),
        ("dos_filemode = true", "needs nt_acls = \"posix\""),
        ("dos_filemode = true\nnt_acls = \"off\"", "needs nt_acls = \"posix\""),
        ("inherit_owner = true\nnt_acls = \"posix\"", "needs run_as"),
        ("inherit_owner = true\nrun_as = \"user\"", "needs nt_acls"),
    ] {
        let fault = fault(&format!("{SHARE}{keys}\n"));
        assert!(fault.contains(what), "{fault}");
    }
    for keys in [
        "map_system = true\ndos_attributes = false\nnt_acls = \"off\"",
        "inherit_owner = true\nforce_user = \"media\"\nnt_acls = \"posix\"",
    ] {
        Config::parse(&format!("{SHARE}{keys}\n")).unwrap();
    }
}

#[test]
fn the_path_may_name_the_user() {
    let share = |name: &str, path: &str, keys: &str| {
        let text = format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\n{keys}\n");
        Config::parse(&text).map(|config| config.shares[0].shared_folder())
    };
    assert_eq!(share("{user}", "/home/{user}", "").unwrap(), std::path::Path::new("/home"));
    assert_eq!(share("a", "/srv/u-{user}/x", "").unwrap(), std::path::Path::new("/srv"));
    assert_eq!(share("a", "/srv/a", "").unwrap(), std::path::Path::new("/srv/a"));
    for (name, path, keys, what) in [
        ("{user}", "/home", "", "needs {user} in its path"),
        ("a", "/home/{user}", "continuous = true", "cannot be used together"),
        ("a", "/home/{user}", "samba_links = true", "cannot be used together"),
        ("a", "/srv/a", "samba_links = true\nfollow_symlinks = true", "cannot be used together"),
        ("a", "/a", "max_connections = 0", "max_connections must be at least 1"),
    ] {
        let faults = share(name, path, keys).unwrap_err();
        assert!(faults.len() == 1 && faults[0].what.contains(what), "{faults:?}");
    }
}

#[test]
fn an_index_has_a_number_of_files_and_one_folder() {
    let share = |keys: &str, path: &str| -> Result<Config, String> {
        let text = format!("[[share]]\nname = \"x\"\npath = \"{path}\"\n{keys}");
        Config::parse(&text).map_err(|faults| faults[0].what.clone())
    };
    let one = |config: Config| (config.shares[0].index, config.shares[0].index_files);
    assert_eq!(share("", "/x").map(one), Ok((false, None)));
    assert_eq!(share("index = true", "/x").map(one), Ok((true, None)));
    for files in [1, 100_000_000] {
        let keys = format!("index = true\nindex_files = {files}");
        assert_eq!(share(&keys, "/x").map(one), Ok((true, Some(files))));
    }
    for files in [0, 100_000_001] {
        let told = share(&format!("index = true\nindex_files = {files}"), "/x").unwrap_err();
        assert!(told.contains("index_files is 1 to 100000000"), "{told}");
    }
    let told = share("spotlight = true", "/x").unwrap_err();
    assert!(told.contains("spotlight needs index = true"), "{told}");
    assert!(share("index = true\nspotlight = true", "/x").unwrap().shares[0].spotlight);
    let told = share("index = true", "/home/{user}").unwrap_err();
    assert!(told.contains("index and {user} in the path cannot be used together"), "{told}");
}

#[test]
fn snapshots_need_a_path_that_says_of_when() {
    for (path, hint) in [
        ("snapshots", "exactly one part"),
        ("%Y%m%d/%N", "exactly one part"),
        ("../%N", "must not go through"),
        ("a/%Y", "must have %Y, %m and %d"),
        ("a/%q", "%q is not supported; use %Y"),
    ] {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/srv/a\"\nsnapshots = \"{path}\"\n");
        let faults = Config::parse(&text).unwrap_err();
        assert!(format!("{faults:?}").contains(hint), "{path}: {faults:?}");
    }
}

#[test]
fn a_managing_token_is_sent_in_clear_to_this_host_alone() {
    let faults = |keys: &str| {
        let tokens = "token_file = \"/t\"\nmanage_token_file = \"/m\"\n";
        let found = Config::parse(&format!("[admin]\n{tokens}{keys}"));
        found.err().map(|faults| faults[0].to_string()).unwrap_or_default()
    };
    for listen in ["127.0.0.1:1", "[::1]:1", "127.0.0.2:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(faults(&format!("listen = \"{listen}\"")), "");
    }
    for listen in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1"] {
        let listen = format!("listen = \"{listen}\"\n");
        assert!(faults(&listen).contains("need TLS"), "{listen}");
        let tls = format!("{listen}certificate = \"/c\"\nkey = \"/k\"\n");
        assert_eq!(faults(&tls), "");
    }
    assert!(faults("").contains("needs listen"));
    assert!(faults("listen = \"127.0.0.1:1\"\ncertificate = \"/c\"").contains("each other"));
    let alone = "[admin]\nlisten = \"127.0.0.1:1\"\nmanage_token_file = \"/m\"\n";
    assert!(Config::parse(alone).is_ok());
    // A server that only shows itself may listen in clear as before.
    let shown = "[admin]\nlisten = \"192.0.2.1:1\"\ntoken_file = \"/t\"\n";
    assert!(Config::parse(shown).is_ok());
}
