//! F3: nothing that comes over the network reaches a shell. No crate of the server starts a
//! program; code that does so for the user of this machine (a mount, background processes of the
//! command, `frevo domain`) names the program, and no shell.

use std::path::{Path, PathBuf};

/// Names of functions that start programs.
const STARTS: [&str; 11] = [
    "process::Command",
    "Command as Process",
    "Command as Program",
    "std::process::{",
    "libc::system",
    "libc::popen",
    "libc::exec",
    "libc::fork",
    "posix_spawn",
    "execve",
    "os::unix::process::CommandExt",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn f3_no_code_of_the_server_starts_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut all);
        }
    }
    assert!(all.len() > 400, "only {} files", all.len());
    let mut starting = Vec::new();
    for path in all {
        let whole = std::fs::read_to_string(&path).unwrap();
        // The search ends at the first test module, because tests may start programs.
        let text = whole.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let starts: Vec<&str> = text
            .lines()
            .filter(|line| STARTS.iter().any(|what| line.contains(what)))
            .map(str::trim)
            .collect();
        if starts.is_empty() {
            continue;
        }
        let name = path.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
        if name.ends_with("tests.rs") {
            continue;
        }
        let of_users = ["mount/", "cli/src/remote/", "cli/src/domain/"];
        if of_users.iter().any(|folder| name.starts_with(folder)) {
            for shell in ["\"sh\"", "/bin/sh", "\"bash\"", "\"-c\""] {
                assert!(!text.contains(shell), "{name}: {shell}");
            }
            continue;
        }
        // `frevo import`, `frevo man` and the look-up of the machine SID start programs of fixed
        // names. The server itself starts only its own program.
        let fixed = [
            ("cli/src/import/host_look.rs", "Command::new(\"testparm\")"),
            ("cli/src/machine_sid.rs", "Command::new(\"net\")"),
            ("cli/src/manual.rs", "Command::new(\"man\")"),
            ("cli/src/serve/discovery.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/winbind.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/directory.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/ldap_directory.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/scan_connector.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/send_traces.rs", "Command::new(\"/proc/self/exe\")"),
            ("cli/src/serve/target_servers.rs", "Command::new(\"/proc/self/exe\")"),
            ("fences/src/hands/server_end.rs", "Command::new(\"/proc/self/exe\")"),
            ("snapshot-hands/src/server_end.rs", "Command::new(\"/proc/self/exe\")"),
            // With `fence = "ceph"`, for clients whose address was checked.
            ("fences/src/ceph.rs", "Command::new(\"/usr/bin/ceph\")"),
        ];
        if fixed.iter().any(|(file, start)| name == *file && text.contains(start)) {
            assert_eq!(text.matches("Command::new(").count(), 1, "{name}");
            continue;
        }
        // Snapshots of ZFS and LVM are made by programs of the system, whose names are fixed.
        if name == "snapshot-hands/src/program.rs" {
            let code = text.split("mod tests").next().unwrap_or_default();
            assert_eq!(code.matches("Command::new(").count(), 1, "{name}");
            for user in ["lvm.rs", "zfs.rs"] {
                let text = std::fs::read_to_string(path.with_file_name(user)).unwrap();
                let text = text.split("mod tests").next().unwrap_or_default();
                for call in text.split("Program::find(").skip(1) {
                    assert!(call.starts_with('"') || call.starts_with("name, "), "{user}: {call}");
                }
                for call in text.split(" lvm(").skip(1) {
                    assert!(call.starts_with('"'), "{user}: {call}");
                }
            }
            continue;
        }
        // If `winbind_domains` is set, the code in these files asks winbind with two programs,
        // whose names must be fixed.
        if ["cli/src/serve/ask_winbind.rs", "cli/src/wbinfo.rs"].contains(&&*name) {
            let programs = usize::from(name.ends_with("wbinfo.rs"));
            assert_eq!(text.matches("Command::new(").count(), programs, "{name}");
            for call in text.split(" command(").skip(1).filter(|call| !call.starts_with("name:")) {
                let is_fixed =
                    call.starts_with("\"ntlm_auth\")") || call.starts_with("\"wbinfo\")");
                assert!(is_fixed, "{name}: command({}", call.lines().next().unwrap_or_default());
            }
            continue;
        }
        // A fork without execve starts no program, and the list of system calls only contains
        // execve's number.
        let is_fork = |line: &&str| line.contains("libc::fork()");
        if name == "posix/src/name_service.rs" && starts.iter().all(is_fork) {
            continue;
        }
        let is_number = |line: &&str| line.starts_with("libc::SYS_execve");
        if name == "cli/src/serve/confine/syscalls.rs" && starts.iter().all(is_number) {
            continue;
        }
        if name == "cli/src/serve/confine/trial.rs" {
            continue;
        }
        // An import of ExitCode or of the process id starts no program; one of Command could.
        let harmless = |line: &&str| line.contains("std::process::{") && !line.contains("Command");
        if !starts.iter().all(harmless) {
            starting.push((name, starts.join("; ")));
        }
    }
    assert_eq!(starting, [], "these start programs");
}

/// Nor does the configuration have a way to name one: what Samba runs by a setting is
/// unknown here.
#[test]
fn f3_no_setting_names_a_program() {
    let names: Vec<String> = frevo_config::keys().into_iter().flat_map(|(_, keys)| keys).collect();
    assert!(names.len() > 100, "{names:?}");
    for name in names {
        for word in ["script", "command", "exec", "program", "hook", "shell", "wins"] {
            assert!(!name.contains(word), "{name}");
        }
    }
}
