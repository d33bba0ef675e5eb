//! Attempts to leave the confinement, made from inside: hidden, for tests.
//!
//! It confines itself exactly as a server with the same arguments does, and then tries
//! what code of an attacker would.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::CapabilitySet;

use crate::arguments::Trial;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::serve::plan::Plan;

use super::Confined;

/// Confines the process, and makes one attempt. It ends well where the attempt did.
pub(crate) fn run(trial: &Trial) -> Done {
    if trial.discovery {
        return run_as_discovery(&trial.attempt);
    }
    let plan = Plan::new(&trial.serve)?;
    super::start_name_service(&plan)?;
    let confined = Confined::begin(&plan, &trial.serve)?;
    let done = attempted(&trial.attempt);
    // What was refused has been noted, or there is no filter.
    let refused = frevo_posix::refused_calls::take();
    print(format!("{}; refused calls: {refused:?}\n", confined.line()).as_bytes())?;
    done.map_err(|error| failure(&trial.attempt, &error))
}

/// Makes the attempt as the process that announces the server.
fn run_as_discovery(attempt: &str) -> Done {
    let lacks = super::confine_discovery();
    print(format!("confined: {attempt}; not confined: {lacks:?}\n").as_bytes())?;
    attempted(attempt).map_err(|error| failure(attempt, &error))
}

fn failure(attempt: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{attempt}: {error}"))
}

/// Makes the attempt that `words` name with its operands.
fn attempted(words: &str) -> io::Result<()> {
    let mut words = words.split(' ');
    let mut next = || words.next().unwrap_or("");
    let (what, one, two) = (next(), next(), next());
    attempt(what, one, two)
}

/// Prints what calls cost, in nanoseconds of the processor: one that does nothing, `stat`, and opening and
/// closing the file at `path`.
fn time(path: &str) -> io::Result<()> {
    let each = |count: u32, call: &dyn Fn() -> io::Result<()>| {
        let began = processor_time();
        (0..count).try_for_each(|_| call())?;
        io::Result::Ok((processor_time() - began) / i64::from(count))
    };
    let nothing = each(2_000_000, &|| {
        let _ = rustix::process::getppid();
        Ok(())
    })?;
    let stat = each(300_000, &|| fs::metadata(path).map(drop))?;
    let open = each(300_000, &|| fs::File::open(path).map(drop))?;
    let line = format!("ns: getppid {nothing}, stat {stat}, open+close {open}\n");
    print(line.as_bytes()).map_err(|failure| io::Error::other(failure.to_string()))
}

/// The time that this thread has had a processor, nanoseconds.
fn processor_time() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn attempt(what: &str, one: &str, two: &str) -> io::Result<()> {
    match what {
        "nothing" => Ok(()),
        "read" => fs::read(one).map(drop),
        "list" => fs::read_dir(one).map(drop),
        "write" => fs::write(one, "x"),
        "append" => fs::OpenOptions::new().append(true).open(one).map(drop),
        "truncate" => fs::OpenOptions::new().write(true).truncate(true).open(one).map(drop),
        "remove" => fs::remove_file(one),
        "make" => fs::create_dir(one),
        "rename" => fs::rename(one, two),
        "hard-link" => fs::hard_link(one, two),
        "link-and-read" => {
            std::os::unix::fs::symlink(one, two).and_then(|()| fs::read(two).map(drop))
        }
        "run" => Command::new(one).status().map(drop),
        "exec" => Err(Command::new(one).exec()),
        "connect" => TcpStream::connect(one).map(drop),
        "listen" => TcpListener::bind(one).map(drop),
        "udp" => UdpSocket::bind(one).map(drop),
        "thread" => {
            std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::Error::other("?"))
        }
        "mount" => Ok(rustix::mount::mount_bind("/", one)?),
        "chroot" => Ok(rustix::process::chroot(one)?),
        "hostname" => Ok(rustix::system::sethostname(b"frevo")?),
        "user" => {
            let root = Some(rustix::process::Uid::ROOT);
            Ok(rustix::thread::set_thread_res_uid(root, root, root)?)
        }
        "signal" => {
            let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
            Ok(rustix::process::kill_process(parent, rustix::process::Signal::CONT)?)
        }
        "privileges" => {
            let mut sets = rustix::thread::capabilities(None)?;
            sets.effective |= CapabilitySet::SYS_PTRACE;
            sets.permitted |= CapabilitySet::SYS_PTRACE;
            Ok(rustix::thread::set_capabilities(None, sets)?)
        }
        "time" => time(one),
        "name" => {
            let found = frevo_posix::user(one)?;
            found.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        _ => Err(io::Error::other("no such attempt")),
    }
}
