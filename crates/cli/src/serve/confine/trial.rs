//! Attempts to leave the confinement, made from inside: hidden, for tests.
//!
//! It confines itself exactly as a server with the same arguments does, and then tries
//! what code of an attacker would.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use frevo_config::ScanService;
use frevo_fences::Kind;
use frevo_fences::hands::{SetUp, UnitSetUp};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::CapabilitySet;

use crate::arguments::Trial;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::serve::plan::Plan;

use super::{Confined, helpers};
use crate::serve::listen::SMB_PORT;

/// Confines the process, and makes one attempt. It ends well where the attempt did.
pub(crate) fn run(trial: &Trial) -> Done {
    if let Some(helper) = &trial.helper {
        return run_as_helper(helper, &trial.attempt);
    }
    let plan = Plan::new(&trial.serve)?;
    super::start_name_service(&plan)?;
    let confined = Confined::begin(&plan, &trial.serve)?;
    let done = attempted(&trial.attempt);
    // `take` returns the numbers of the system calls that the filter has refused; without a filter
    // the list is empty.
    let refused = frevo_posix::refused_calls::take();
    print(format!("{}; refused calls: {refused:?}\n", confined.line()).as_bytes())?;
    done.map_err(|error| failure(&trial.attempt, &error))
}

/// Makes the attempt as a process that helps the server.
fn run_as_helper(helper: &str, attempt: &str) -> Done {
    let mut lacks = Vec::new();
    match helper {
        "discovery" => lacks = helpers::confine_discovery(),
        "directory" => helpers::confine_directory(),
        "targets" => helpers::confine_targets(SMB_PORT),
        "ldap" => helpers::confine_ldap(&[636], &[]),
        "scanners" => {
            let path = std::path::PathBuf::from("/run/clamav/clamd.ctl");
            helpers::confine_scanners(&ScanService::ClamdSocket(path));
        }
        "hands" => {
            frevo_posix::inherited::close_all();
            lacks = helpers::confine_hands(&SetUp::default());
        }
        "hands-of-ceph" => {
            frevo_posix::inherited::close_all();
            let unit = UnitSetUp { kind: Kind::Ceph, ..UnitSetUp::default() };
            lacks = helpers::confine_hands(&SetUp { units: vec![unit], ..SetUp::default() });
        }
        "winbind" => helpers::confine_winbind(false),
        "winbind-as-root" => helpers::confine_winbind(true),
        "names" => {
            helpers::confine_names_keeper();
            helpers::confine_names();
        }
        #[cfg(feature = "traces")]
        "traces" => helpers::confine_traces(4318),
        _ => return Err(Failure::new(Exit::Usage, "no such process")),
    }
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
    let (ours, theirs) = UnixStream::pair()?;
    let write = each(300_000, &|| {
        rustix::io::write(&ours, b"x")?;
        rustix::net::recv(&theirs, &mut [0_u8; 1], rustix::net::RecvFlags::empty())?;
        Ok(())
    })?;
    let send = each(300_000, &|| {
        rustix::net::send(&ours, b"x", SendFlags::NOSIGNAL)?;
        rustix::net::recv(&theirs, &mut [0_u8; 1], rustix::net::RecvFlags::empty())?;
        Ok(())
    })?;
    let line = format!(
        "ns: getppid {nothing}, stat {stat}, open+close {open}, write+recv {write}, \
         send+recv {send}\n"
    );
    print(line.as_bytes()).map_err(|failure| io::Error::other(failure.to_string()))
}

fn process(number: &str) -> Option<Pid> {
    number.parse().ok().and_then(Pid::from_raw)
}

/// Makes a socket of a family, and of a protocol that streams.
fn socket(family: &str, protocol: &str) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let family = AddressFamily::from_raw(family.parse().map_err(invalid)?);
    let number = protocol.parse().ok().and_then(std::num::NonZeroU32::new);
    let protocol = number.map(rustix::net::Protocol::from_raw);
    Ok(rustix::net::socket(family, SocketType::STREAM, protocol).map(drop)?)
}

/// Connects to an address on the way of sending, without connect(2).
fn fast_open(address: &str) -> io::Result<()> {
    /// MSG_FASTOPEN of send(2).
    const FAST_OPEN: u32 = 0x2000_0000;
    let address: std::net::SocketAddr = address.parse().map_err(io::Error::other)?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let flags = SendFlags::from_bits_retain(FAST_OPEN) | SendFlags::NOSIGNAL;
    Ok(rustix::net::sendto(&socket, b"x", flags, &address).map(drop)?)
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
        // As a fence runs `ceph`.
        "run-without-output" => {
            let (empty, nothing) = (Stdio::null(), Stdio::null());
            let ended = Command::new(one).stdin(empty).stdout(nothing).output()?;
            ended.status.success().then_some(()).ok_or_else(|| io::Error::other("it failed"))
        }
        "exec" => Err(Command::new(one).exec()),
        "connect" => TcpStream::connect(one).map(drop),
        "listen" => TcpListener::bind(one).map(drop),
        "udp" => UdpSocket::bind(one).map(drop),
        "watch" => {
            let path = (!one.is_empty()).then(|| CString::new(one)).transpose()?;
            frevo_posix::attempt_watch(path.is_none(), path.as_deref())
        }
        "mode" => {
            let mode = u32::from_str_radix(two, 8).map_err(io::Error::other)?;
            fs::set_permissions(one, fs::Permissions::from_mode(mode))
        }
        "environment" => {
            let shown = format!("{:?}\n", std::env::vars_os().collect::<Vec<_>>());
            print(shown.as_bytes()).map_err(|failure| io::Error::other(failure.to_string()))
        }
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
        _ => attempt_more(what, one, two),
    }
}

/// Attempts at sockets and at other processes.
fn attempt_more(what: &str, one: &str, two: &str) -> io::Result<()> {
    match what {
        "unix" => UnixStream::connect(one).map(drop),
        "unix-abstract" => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(one)?).map(drop)
        }
        "datagram" => UnixDatagram::unbound()?.send_to(b"x", one).map(drop),
        "pair-of-datagrams" => UnixDatagram::pair().map(drop),
        "socket" => socket(one, two),
        "fast-open" => fast_open(one),
        "ring" => frevo_net::file_io::attempt_ring(),
        "cached" => frevo_net::file_io::attempt_cachestat(&fs::File::open(one)?),
        "mount-kind" => {
            let kind = frevo_posix::mount_kind(std::path::Path::new(one))?;
            kind.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        "limits" => {
            let limit = Rlimit { current: Some(0), maximum: Some(0) };
            Ok(rustix::process::prlimit(process(one), Resource::Core, limit).map(drop)?)
        }
        "affinity" => {
            let here = rustix::thread::sched_getaffinity(None)?;
            Ok(rustix::thread::sched_setaffinity(process(one), &here)?)
        }
        _ => Err(io::Error::other("no such attempt")),
    }
}
