//! Checks that need the mount option `posix`.

use crate::check::{Check, Outcome, ensure};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checks in their order; all use the directory that the first one makes.
pub(crate) const ALL: &[Check] = &[
    ("posix-modes", modes),
    ("posix-owner", owner),
    ("posix-chmod", chmod),
    ("posix-names", names),
    ("posix-case-twins", twins),
    ("posix-hard-link", hard_link),
    ("posix-unlink-open", unlink_open),
    ("posix-rename-over-open", rename_over_open),
    ("posix-rename-directory-in-use", rename_directory),
    ("posix-symlink", symlink),
    ("posix-fifo", fifo),
    ("posix-statfs", statfs),
];

fn room(dir: &Path) -> PathBuf {
    dir.join("posix")
}

fn mode(path: &Path) -> Result<u32, std::io::Error> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

fn modes(dir: &Path) -> Outcome {
    let room = room(dir);
    fs::create_dir(&room)?;
    for wanted in [0o600, 0o640, 0o755, 0o444] {
        let path = room.join(format!("{wanted:o}"));
        // Under a lease cifs.ko need not query the mode of a new file and shows file_mode, so the
        // mode is checked later, on the server's disk.
        OpenOptions::new().write(true).create_new(true).mode(wanted).open(&path)?;
    }
    let path = room.join("directory");
    DirBuilder::new().mode(0o750).create(&path)?;
    let found = mode(&path)?;
    ensure!(found == 0o750, "a directory has {found:o}");
    Ok(())
}

fn owner(dir: &Path) -> Outcome {
    let meta = fs::metadata(room(dir).join("600"))?;
    ensure!((meta.uid(), meta.gid()) == (0, 0), "owned by {}:{}", meta.uid(), meta.gid());
    Ok(())
}

fn chmod(dir: &Path) -> Outcome {
    for (name, wanted, directory) in
        [("chmodded", 0o751, false), ("private", 0o2770, true), ("made", 0o1777, true)]
    {
        let path = room(dir).join(name);
        if directory {
            fs::create_dir(&path)?;
        } else {
            fs::write(&path, name)?;
        }
        fs::set_permissions(&path, Permissions::from_mode(wanted))?;
        let found = mode(&path)?;
        ensure!(found == wanted, "{name} has {found:o}");
    }
    Ok(())
}

fn names(dir: &Path) -> Outcome {
    let names = ["a:b*?.", "less<more>", "pipe|\"quoted\"", "space ", "dots.."];
    for name in names {
        let path = room(dir).join(name);
        fs::write(&path, name)?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    }
    let listed: Vec<_> = fs::read_dir(room(dir))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, std::io::Error>>()?;
    for name in names {
        ensure!(listed.iter().any(|found| found == name), "{name} is not listed");
        ensure!(fs::read_to_string(room(dir).join(name))? == name, "{name} has other bytes");
    }
    Ok(())
}

fn twins(dir: &Path) -> Outcome {
    let (lower, upper) = (room(dir).join("twin"), room(dir).join("TWIN"));
    fs::write(&lower, "lower")?;
    fs::write(&upper, "upper")?;
    ensure!(fs::read_to_string(&lower)? == "lower", "the one became the other");
    ensure!(!room(dir).join("Twin").exists(), "a third was found");
    Ok(())
}

fn hard_link(dir: &Path) -> Outcome {
    let (one, two) = (room(dir).join("link:one"), room(dir).join("link:two"));
    fs::write(&one, "linked")?;
    fs::hard_link(&one, &two)?;
    let (a, b) = (fs::metadata(&one)?, fs::metadata(&two)?);
    ensure!(a.ino() == b.ino() && b.nlink() == 2, "{} links", b.nlink());
    Ok(())
}

fn unlink_open(dir: &Path) -> Outcome {
    let path = room(dir).join("gone");
    fs::write(&path, "still here")?;
    let mut file = File::open(&path)?;
    fs::remove_file(&path)?;
    // cifs.ko answers a stat by name from its open handle, but a listing comes from the server, so
    // the listing is read.
    for entry in fs::read_dir(room(dir))? {
        let name = entry?.file_name();
        ensure!(name != "gone" && !name.to_string_lossy().starts_with(".__smb"), "{name:?}");
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    ensure!(text == "still here", "the open file has {text:?}");
    Ok(())
}

fn rename_over_open(dir: &Path) -> Outcome {
    let (old, new) = (room(dir).join("replaced"), room(dir).join("new"));
    fs::write(&old, "old")?;
    fs::write(&new, "new")?;
    let mut file = File::open(&old)?;
    fs::rename(&new, &old)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    ensure!(text == "old", "the open file has {text:?}");
    drop(file);
    Ok(())
}

fn rename_directory(dir: &Path) -> Outcome {
    let (from, to) = (room(dir).join("from"), room(dir).join("to"));
    fs::create_dir(&from)?;
    fs::create_dir(&to)?;
    fs::write(from.join("inside"), "inside")?;
    let mut file = File::open(from.join("inside"))?;
    fs::rename(&from, &to)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    ensure!(text == "inside", "the open file has {text:?}");
    ensure!(fs::read_to_string(to.join("inside"))? == "inside", "not moved");
    Ok(())
}

fn symlink(dir: &Path) -> Outcome {
    let path = room(dir).join("symlink");
    std::os::unix::fs::symlink("twin", &path)?;
    ensure!(fs::read_link(&path)? == Path::new("twin"), "it leads elsewhere");
    ensure!(fs::read_to_string(&path)? == "lower", "it is not followed");
    Ok(())
}

fn fifo(dir: &Path) -> Outcome {
    let path = room(dir).join("fifo");
    let status = Command::new("mkfifo").arg(&path).status()?;
    ensure!(status.success(), "mkfifo: {status}");
    ensure!(fs::symlink_metadata(&path)?.file_type().is_fifo(), "it is something else");
    Ok(())
}

fn statfs(dir: &Path) -> Outcome {
    let output = Command::new("stat").args(["-f", "-c", "%S %b %f %a %c %d"]).arg(dir).output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [size, blocks, free, available, inodes, free_inodes] = numbers[..] else {
        return Err(text.into());
    };
    ensure!(size > 0 && blocks >= free && free >= available, "{text}");
    ensure!(inodes > 0 && inodes >= free_inodes, "{text}");
    Ok(())
}
