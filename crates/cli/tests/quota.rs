//! `frevo quota`: the limit of a share on a btrfs of the test's own, which takes root; and what is said where
//! the file system keeps no quotas. Those of users, groups and projects take a kernel that counts them:
//! `disks/quotas` of dev/interop.
#![allow(clippy::print_stdout, reason = "a test that is left out says so")]

mod harness;
#[path = "../../posix/tests/common/loops.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
mod loops;

use std::path::Path;
use std::process::Command;

use harness::{Said, Sandbox, said, text};
use loops::Mounted;
use serde_json::Value;

/// A configuration with one share.
fn site(folder: &Path) -> Sandbox {
    let place = Sandbox::new();
    let config = format!("[[share]]\nname = \"photos\"\npath = {:?}\n", text(folder));
    place.file("frevo.toml", &config, 0o600);
    place
}

fn quota(place: &Sandbox, arguments: &[&str]) -> Said {
    let config = place.path("frevo.toml");
    let arguments = [&["quota", "--config", text(&config)], arguments].concat();
    said(place.command(&arguments).output().unwrap())
}

#[test]
fn a_share_on_btrfs_has_a_limit() {
    let test = "a_share_on_btrfs_has_a_limit";
    let Some(mounted) = Mounted::new("btrfs", 128, &["-q"], "loop") else { return };
    let share = mounted.path().join("share");
    let btrfs = |arguments: &[&str], path: &Path| {
        let output = Command::new("btrfs").args(arguments).arg(path).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !btrfs(&["subvolume", "create"], &share) {
        println!("{test}: skipped, there is no program btrfs");
        return;
    }
    let place = site(&share);
    let refused = quota(&place, &["set", "photos", "--share", "--space", "8M"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("btrfs quota enable"), "{refused:?}");
    assert!(btrfs(&["quota", "enable"], &mounted.path()));
    let set = quota(&place, &["set", "photos", "--share", "--space", "8M"]);
    assert_eq!((set.code, set.err.contains("of 8.0M")), (0, true), "{set:?}");
    let usage = quota(&place, &["set", "photos", "--share", "--files", "8"]);
    assert_eq!(usage.code, 2, "{usage:?}");
    assert!(std::fs::write(share.join("large"), vec![7; 16 << 20]).is_err());
    let shown = quota(&place, &["show", "--json"]);
    let object: Value = serde_json::from_str(shown.out.lines().next().unwrap()).unwrap();
    assert_eq!((&object["share"], &object["kind"]), (&"photos".into(), &"share".into()));
    assert_eq!(object["hard_space"], 8 << 20);
    let shown = quota(&place, &["show", "photos"]);
    assert!(shown.out.contains("8.0M"), "{shown:?}");
    assert_eq!(quota(&place, &["set", "photos", "--share", "--space", "none"]).code, 0);
    assert!(std::fs::write(share.join("large"), vec![7; 16 << 20]).is_ok());
}

#[test]
fn what_cannot_be_is_said() {
    let place = site(Path::new("/proc"));
    for (arguments, code, word) in [
        (&["set", "photos", "--user", "root", "--space", "1G"][..], 1, "usrquota"),
        (&["set", "photos", "--group", "root", "--space", "1G"], 1, "grpquota"),
        (&["set", "photos", "--share", "--space", "1G"], 1, "prjquota"),
        (&["set", "photo", "--share", "--space", "1G"], 6, "did you mean photos?"),
        (&["set", "photos", "--share", "--space", "0"], 2, "at least 1"),
        (&["set", "photos", "--share"], 2, "--space"),
        (&["set", "photos", "--space", "1G"], 2, "--share"),
        (&["show", "photo"], 6, "did you mean photos?"),
    ] {
        let said = quota(&place, arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        assert!(said.err.contains(word), "{arguments:?}: {said:?}");
    }
    let shown = quota(&place, &["show"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("keeps no quotas"), "{shown:?}");
}
